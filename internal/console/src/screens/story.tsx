import { useState } from 'preact/hooks';
import { both, count, duration, plural, since, stamp } from '../format';
import { clock, href, route, setQuery, skew, status } from '../state';
import type { Chapter, Outage, PastOutage } from '../types';
import { Badge, Choice, Command, cx, Empty, Facts, Panel, Screen, Sign, Table, Time, Tree, useLoad, View, type Tone } from '../ui';

interface Span {
  from: number;
  to: number;
  kind: 'spare' | 'risk' | 'lost';
}

interface Reign {
  leader: string;
  term: number;
  from: number;
  to: number;
}

const ms = (text: unknown) => new Date(String(text)).getTime();

// quorumSpans is how the quorum was, one span after the other.
function quorumSpans(chapters: Chapter[], from: number, to: number): Span[] {
  const marks: { at: number; kind: Span['kind'] }[] = [{ at: from, kind: 'spare' }];
  for (const c of chapters) {
    const at = ms(c.at);
    if (c.type === 'QUORUM_AT_RISK') marks.push({ at, kind: 'risk' });
    if (c.type === 'QUORUM_LOST') marks.push({ at: ms(c.payload['began_at'] ?? c.at), kind: 'lost' });
    if (c.type === 'QUORUM_RESTORED') {
      const healthy = Number(c.payload['healthy'] ?? 0);
      const quorum = Number(c.payload['quorum'] ?? 0);
      marks.push({ at: ms(c.payload['ended_at'] ?? c.at), kind: healthy > quorum || c.payload['after'] === 'at_risk' ? 'spare' : 'risk' });
    }
  }
  marks.sort((a, b) => a.at - b.at);
  return marks
    .map((m, i) => ({ from: Math.max(from, m.at), to: Math.min(to, marks[i + 1]?.at ?? to), kind: m.kind }))
    .filter((s) => s.to > s.from);
}

// reigns is who led when.
function reigns(chapters: Chapter[], to: number): Reign[] {
  const out: Reign[] = [];
  for (const c of chapters.toSorted((a, b) => ms(a.at) - ms(b.at))) {
    const last = out.at(-1);
    const at = ms(c.at);
    if (c.type === 'LEADER_LOST' && last && last.term === c.term) last.to = Math.min(last.to, at);
    if (c.type === 'LEADER_ELECTED') {
      // Nobody led in the gap before an election.
      if (last) last.to = Math.min(last.to, at - (c.gap_seconds ?? 0) * 1000);
      out.push({ leader: c.subject ?? '?', term: c.term, from: at, to });
    }
  }
  return out;
}

const says: Record<string, (c: Chapter) => string> = {
  LEADER_ELECTED: (c) => `${c.subject} leads${c.gap_seconds ? `, after ${duration(c.gap_seconds)} without a leader` : ''} (${c.payload['cause']})`,
  LEADER_LOST: (c) => `${c.subject} led for ${duration(Number(c.payload['led_ms'] ?? 0) / 1000)} (${c.payload['cause']})`,
  LEADER_HEARTBEAT_MISSING: (c) => `${c.payload['seen_by']} heard nothing from ${c.subject} for ${duration(Number(c.payload['missing_ms'] ?? 0) / 1000)}`,
  QUORUM_LOST: (c) => `no quorum: ${((c.payload['down'] as string[]) ?? []).join(', ') || c.payload['cause']} not reachable`,
  QUORUM_RESTORED: (c) => (c.payload['after'] === 'at_risk' ? `a voter may fail again${c.gap_seconds ? `, after ${duration(c.gap_seconds)}` : ''}` : `quorum again, after ${duration(c.gap_seconds)}; ${plural(Number(c.payload['refused'] ?? 0), 'write was', 'writes were')} refused`),
  QUORUM_RECOVERY_STARTED: () => 'a majority was in reach again',
  QUORUM_AT_RISK: (c) => `no voter to spare${c.subject ? `: ${c.subject}` : ''}`,
  VOTER_OFFLINE: (c) => `${c.subject} does not answer${c.payload['reason'] === 'raft' ? ' over raft' : ''}`,
  VOTER_ONLINE: (c) => `${c.subject} answers again${c.gap_seconds ? `, after ${duration(c.gap_seconds)}` : ''}`,
};

const tone = (type: string): Tone => (/LOST|SPLIT_BRAIN_DETECTED|EXPIRED/.test(type) ? 'bad' : /RISK|OFFLINE|MISSING|DEMOTED|REMOVED/.test(type) ? 'warn' : /RESTORED|ELECTED|ONLINE|RESOLVED/.test(type) ? 'ok' : 'idle');

const spans: [string, string, number][] = [
  ['1h', 'an hour', 3600],
  ['24h', 'a day', 86400],
  ['7d', 'a week', 7 * 86400],
  ['', 'all that is kept', 0],
];

interface StoryAnswer {
  history: Chapter[];
  first_offset: number;
  outage?: Outage | null;
}

export function Story() {
  const story = useLoad<StoryAnswer>('/v1/cluster/history?limit=2000', 3000);
  if (route.value.part) return <Opened offset={Number(route.value.part)} story={story.data} />;
  const own = useLoad<{ node_id: string; outage?: Outage | null; outages: PastOutage[]; records: { seq: number; settled: boolean; time: string; type: string; payload: Record<string, unknown> }[] }>('/v1/cluster/outage', 3000);
  const q = route.value.query;
  const [typed, type] = useState(q.get('at') ?? undefined);
  const [opened] = useState(Date.now() + skew.value);
  return (
    <Screen title="The cluster's story" about="Who led when, and when a voter could fail without an interruption." command="ringlog cluster history">
      <form class="filters" onSubmit={(e) => e.preventDefault()} role="search" aria-label="Time">
        <Choice name="span" label="Shown" values={spans.map(([v, text]) => [v, text])} />
        <label class="field">
          <span>Who led at ({clock.value})</span>
          <input
            name="at"
            class="time"
            value={typed ?? stamp(new Date(opened), clock.value, true)}
            onInput={(e) => {
              type(e.currentTarget.value);
              setQuery({ at: e.currentTarget.value.trim() });
            }}
            spellcheck={false}
            autocomplete="off"
          />
        </label>
      </form>
      <View of={own}>
        {(o) =>
          o.outage && (
            <Panel title={`An outage, as ${o.node_id} sees it`} extra={<Badge tone="bad">for {duration(since(o.outage.since))}</Badge>}>
              <Facts
                of={[
                  ['cause', o.outage.cause === 'unreachable' ? 'it does not reach a majority' : 'there is no leader'],
                  ['last leader', o.outage.last_leader || 'none'],
                  ['writes refused here', count(o.outage.refused)],
                  ...(o.outage.peers ?? []).map((p): [string, preact.ComponentChild] => [p.id, <Badge tone={p.reachable ? 'ok' : 'bad'}>{p.reachable ? 'in reach' : `not in reach, last contact ${p.last_contact_ms !== undefined && p.last_contact_ms >= 0 ? duration(p.last_contact_ms / 1000) + ' ago' : 'never'}`}</Badge>]),
                ]}
              />
              <p class="note">Each voter sees an outage for itself: this is what {o.node_id} sees. The others, on their own consoles:</p>
              <p class="chips">
                {status.value?.members.map((m) => (
                  <a class="chip" key={m.id} href={m.http.replace(/\/$/, '') + '/ui/#/story'}>
                    {m.id}
                  </a>
                ))}
              </p>
              <Command text="ringlog cluster outage" />
            </Panel>
          )
        }
      </View>
      <View of={story} empty={(s) => s.history.length === 0 && <Empty hint="ringlog cluster history">Nothing is kept of it.</Empty>}>
        {(s) => <Chapters s={s} at={q.get('at') ?? ''} span={spans.find(([v]) => v === (q.get('span') ?? ''))?.[2] ?? 0} />}
      </View>
    </Screen>
  );
}

function Chapters({ s, at, span }: { s: StoryAnswer; at: string; span: number }) {
  const now = Date.now() + skew.value;
  const first = Math.min(...s.history.map((c) => ms(c.at)));
  const from = span ? now - span * 1000 : first;
  const led = reigns(s.history, now);
  const asked = at ? new Date(at.replace(' ', 'T') + (clock.value === 'UTC' ? 'Z' : '')).getTime() : undefined;
  const moment = (t: number) => `${stamp(new Date(t), clock.value, true)} ${clock.value === 'UTC' ? 'UTC' : 'local time'}`;
  const then = asked === undefined ? undefined : led.findLast((r) => r.from <= asked && asked < r.to);
  const shown = s.history.filter((c) => ms(c.at) >= from).toSorted((a, b) => ms(b.at) - ms(a.at) || b.offset - a.offset);
  const outages = s.history.filter((c) => c.type === 'QUORUM_LOST').toReversed();
  return (
    <>
      {asked !== undefined && (
        <div class="result" role="status" data-test="led">
          {Number.isNaN(asked) ? (
            'Write a time such as 2026-11-27 18:35:00.'
          ) : (
            <>
              At {moment(asked)}:{' '}
              {asked > now ? 'That time is in the future.' : asked < first ? 'The log does not keep that time any more.' : then ? `${then.leader} led from ${moment(then.from)} to ${then.to < now ? moment(then.to) : 'now'}, in term ${then.term}.` : 'Nobody led then.'}
            </>
          )}
        </div>
      )}
      <Panel title="Quorum and leaders" extra={<span class="quiet-text">{stamp(new Date(from), clock.value, true)} to now, {clock.value}</span>}>
        <Band from={from} to={now} quorum={quorumSpans(s.history, from, now)} led={led} asked={asked} />
      </Panel>
      {outages.length > 0 && (
        <Panel title="Outages">
          <Table<Chapter>
            label="Outages"
            rows={outages}
            id={(c) => c.offset}
            columns={[
              { name: 'Began', cell: (c) => <a href={href('story', String(c.offset))}><Time at={String(c.payload['began_at'] ?? c.at)} /></a> },
              { name: 'Lasted', right: true, cell: (c) => duration(restored(s.history, c)?.gap_seconds) },
              { name: 'Cause', cell: (c) => String(c.payload['cause'] ?? '') },
              { name: 'Down', cell: (c) => ((c.payload['down'] as string[]) ?? []).join(', ') },
              { name: 'Writes refused', right: true, cell: (c) => count(Number(c.payload['refused'] ?? 0)) },
              { name: 'Seen by', cell: (c) => ((c.payload['seen_by'] as string[]) ?? []).join(', ') },
            ]}
          />
        </Panel>
      )}
      <Panel title="What happened, the newest first" extra={s.first_offset > 1 && <span class="quiet-text">from offset {count(s.first_offset)} on</span>}>
        <Table<Chapter>
          label="Events of the cluster"
          rows={shown.slice(0, 500)}
          id={(c) => c.offset}
          columns={[
            { name: 'Time', cell: (c) => <Time at={c.at} ms /> },
            { name: 'Offset', right: true, cell: (c) => <a href={href('event', String(c.offset))}>{c.offset}</a> },
            { name: 'Event', cell: (c) => <Badge tone={tone(c.type)}>{c.type}</Badge> },
            { name: 'Term', right: true, cell: (c) => c.term },
            { name: 'What', cell: (c) => says[c.type]?.(c) ?? c.subject ?? '' },
          ]}
        />
      </Panel>
    </>
  );
}

const restored = (all: Chapter[], lost: Chapter) => all.find((c) => c.type === 'QUORUM_RESTORED' && c.payload['incident'] === lost.payload['incident']);

// Band draws the quorum and the leaders over time. Heights differ with the state, so that it reads without colours.
function Band({ from, to, quorum, led, asked }: { from: number; to: number; quorum: Span[]; led: Reign[]; asked?: number }) {
  const x = (at: number) => 90 + (Math.max(0, Math.min(1, (at - from) / Math.max(1, to - from))) * 900);
  const height = { spare: 10, risk: 20, lost: 34 };
  const fill = { spare: 'var(--ok)', risk: 'var(--warn)', lost: 'var(--bad)' };
  const word = { spare: 'a voter may fail', risk: 'no voter to spare', lost: 'no quorum' };
  const ids = [...new Set(led.map((r) => r.leader))].toSorted();
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((f) => from + f * (to - from));
  const bottom = 48 + ids.length * 20;
  return (
    <>
      <svg class="band" viewBox={`0 0 1000 ${bottom + 22}`} role="img" aria-label="Quorum and leaders over time; the tables below have the same">
        <text x="0" y="34" class="axis">
          Quorum
        </text>
        {quorum.map((s) => (
          <rect key={s.from} x={x(s.from)} width={Math.max(1.5, x(s.to) - x(s.from))} y={42 - height[s.kind]} height={height[s.kind]} fill={fill[s.kind]}>
            <title>{`${word[s.kind]}, ${duration((s.to - s.from) / 1000)} from ${both(new Date(s.from).toISOString())}`}</title>
          </rect>
        ))}
        {ids.map((id, i) => (
          <g key={id}>
            <text x="0" y={62 + i * 20} class="axis">
              {id}
            </text>
            <line x1="90" x2="990" y1={58 + i * 20} y2={58 + i * 20} class="rule" />
            {led
              .filter((r) => r.leader === id && r.to > from)
              .map((r) => (
                <rect key={r.term} x={x(r.from)} width={Math.max(2, x(r.to) - x(r.from))} y={52 + i * 20} height="12" rx="2" fill="var(--accent)">
                  <title>{`${id} led in term ${r.term} for ${duration((r.to - Math.max(r.from, from)) / 1000)}`}</title>
                </rect>
              ))}
          </g>
        ))}
        {asked !== undefined && asked >= from && asked <= to && <line x1={x(asked)} x2={x(asked)} y1="4" y2={bottom} class="asked" />}
        {ticks.map((t, i) => (
          <text key={t} x={x(t)} y={bottom + 16} class="axis" text-anchor={i === 0 ? 'start' : i === 4 ? 'end' : 'middle'}>
            {stamp(new Date(t), clock.value, to - from > 86_400_000)}
          </text>
        ))}
      </svg>
      <div class="legend">
        {(['spare', 'risk', 'lost'] as const).map((k) => (
          <span key={k}>
            <i style={{ borderTopWidth: `${height[k] / 3}px`, borderColor: fill[k] }} />
            {word[k]}
          </span>
        ))}
      </div>
    </>
  );
}

// Opened is one outage with the view of each voter, as the log has it.
function Opened({ offset, story }: { offset: number; story: StoryAnswer | undefined }) {
  const lost = story?.history.find((c) => c.offset === offset);
  const end = story && lost && restored(story.history, lost);
  const views = (lost?.payload['views'] as Record<string, any>[] | undefined) ?? [];
  return (
    <Screen title={`Outage ${lost?.payload['incident'] ?? ''}`} about={<a href={href('story')}>The cluster's story</a>} command={`ringlog cluster history --from ${offset} -n 20`}>
      {!story ? (
        <p>Loading …</p>
      ) : !lost ? (
        <Empty>The log has no outage at offset {offset}.</Empty>
      ) : (
        <>
          <Panel>
            <Facts
              of={[
                ['began', both(String(lost.payload['began_at'] ?? lost.at))],
                ['ended', end ? both(String(end.payload['ended_at'] ?? end.at)) : 'not yet'],
                ['lasted', duration(end?.gap_seconds)],
                ['cause', String(lost.payload['cause'] ?? '')],
                ['last leader', String(lost.payload['last_leader'] ?? '')],
                ['leader after it', end?.subject],
                ['writes refused', count(Number(end?.payload['refused'] ?? lost.payload['refused'] ?? 0))],
              ]}
            />
          </Panel>
          <Panel title="As each voter saw it">
            <Table
              label="Views of the voters"
              rows={views}
              id={(v) => String(v['voter_id'])}
              columns={[
                { name: 'Voter', cell: (v) => <strong>{v['voter_id']}</strong> },
                { name: 'From', cell: (v) => <Time at={v['began_at']} ms /> },
                { name: 'Until', cell: (v) => <Time at={v['ended_at']} ms /> },
                { name: 'For', right: true, cell: (v) => duration((ms(v['ended_at']) - ms(v['began_at'])) / 1000) },
                { name: 'Cause', cell: (v) => v['cause'] },
                { name: 'Did not reach', cell: (v) => (v['unreachable'] ?? []).join(', ') || 'none' },
                { name: 'Refused', right: true, cell: (v) => count(v['refused']) },
              ]}
            />
            <p class={cx('note')}>
              <Sign tone="idle" /> A voter that was down itself saw nothing, and is not listed.
            </p>
          </Panel>
          <Panel title="The event">
            <div class="payload">
              <Tree value={lost.payload} />
            </div>
            <p>
              <a href={href('event', String(offset))}>offset {offset}</a>
            </p>
          </Panel>
        </>
      )}
    </Screen>
  );
}

