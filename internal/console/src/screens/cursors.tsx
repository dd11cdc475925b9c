import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { asDetail, call, get, path, text, type ErrorDetail } from '../api';
import { command, count, duration, filterText, held, lag, lagText, list, noun, passed, plural, rateText, since } from '../format';
import { href, route, status } from '../state';
import type { Cursor, StoredEvent } from '../types';
import { Act, Badge, Choice, Command, Empty, Facts, Failed, Link, Loading, Panel, post, Rows, Screen, Search, Sign, Stat, Table, Time, useAct, useLoad, View } from '../ui';
import { Plot } from '../plot';
import { Explain } from './event';

// Audit is what the console reads of the live audit: who listens to which types, and how many events there are of them.
interface Audit {
  types: { name: string; class: string; emitters: unknown[]; subscribers: { component: string; basis: string }[] }[];
}

const auditPath = '/v1/audit?live=true&only=dead,unknown,connected';

// unfed returns the types that nothing has emitted, by the cursor that listens to them, and the cursors that listen to
// nothing else.
function unfed(audit: Audit | undefined) {
  const types = new Map<string, Audit['types']>();
  const fed = new Set<string>();
  for (const t of audit?.types ?? []) {
    for (const w of t.subscribers) {
      if (w.basis !== 'cursor') continue;
      if (t.emitters.length) fed.add(w.component);
      else types.set(w.component, [...(types.get(w.component) ?? []), t]);
    }
  }
  return { types, alone: new Set([...types.keys()].filter((c) => !fed.has(c))) };
}

function State({ c, dead, idle }: { c: Cursor; dead?: boolean; idle?: boolean }) {
  if (c.stalled) return <Badge tone="warn">stalled {duration(since(c.stalled.since))}</Badge>;
  if (c.backpressure?.since) return <Badge tone="warn">throttled</Badge>;
  if (c.gap) return <Badge tone="warn">has a gap</Badge>;
  if (lag(c) === 0 && dead) return <Badge tone="warn">nothing emits it</Badge>;
  if (lag(c) === 0) return <Badge tone="ok">caught up</Badge>;
  return idle ? <Badge tone="warn">no member</Badge> : <Badge tone="idle">reading</Badge>;
}

// useCursors reads all pages, and again every few seconds. Ten thousand are ten pages.
function useCursors() {
  const [state, set] = useState<{ cursors?: Cursor[]; total?: number; error?: ErrorDetail }>({});
  useEffect(() => {
    const abort = new AbortController();
    let timer = 0;
    const ask = async () => {
      try {
        const all: Cursor[] = [];
        let total = 0;
        for (let after: string | undefined = ''; after !== undefined; ) {
          const page: { cursors: Cursor[]; next?: string; cursors_total: number } = await get(path('/v1/cursors', { limit: 1000, after }), abort.signal);
          all.push(...page.cursors);
          total = page.cursors_total;
          after = page.next;
          // The first page is shown at once.
          set((s) => (s.cursors ? s : { cursors: [...all], total }));
        }
        set({ cursors: all, total });
      } catch (e) {
        if (abort.signal.aborted) return;
        const error = asDetail(e);
        set((s) => ({ ...s, error }));
      }
      if (!abort.signal.aborted) timer = setTimeout(ask, document.hidden ? 15000 : 4000) as unknown as number;
    };
    void ask();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, []);
  return state;
}

export function Cursors() {
  return route.value.part ? <OneCursor name={route.value.part} /> : <AllCursors />;
}

function AllCursors() {
  const { cursors, total, error } = useCursors();
  const audit = useLoad<Audit>(auditPath, 60_000);
  const dead = useMemo(() => unfed(audit.data).alone, [audit.data]);
  const q = route.value.query;
  const name = (q.get('name') ?? '').toLowerCase();
  const only = q.get('only') ?? '';
  const rows = (cursors ?? []).filter(
    (c) =>
      (!name || c.name.toLowerCase().includes(name) || filterText(c.filter).toLowerCase().includes(name)) &&
      (!only || (only === 'groups' ? !!c.group : only === 'cursors' ? !c.group : only === 'lagging' ? lag(c) > 0 : !!c.stalled || !!c.gap || !!c.backpressure?.since || dead.has(c.name))),
  );
  // The cursor that has passed least keeps the log from being trimmed.
  const holder = cursors?.length ? cursors.reduce((a, b) => (passed(b) < passed(a) ? b : a)) : undefined;
  const s = status.value;
  return (
    <Screen title="Cursors and groups" about="Where each reader is, and what it lags by." command={only === 'lagging' ? 'ringlog cursor lag' : 'ringlog cursor ls'}>
      <form class="filters" role="search" aria-label="Filter cursors" onSubmit={(e) => e.preventDefault()}>
        <Search name="name" label="Name or filter" />
        <Choice
          name="only"
          label="Show"
          values={[
            ['', 'all'],
            ['cursors', 'cursors alone'],
            ['groups', 'groups alone'],
            ['lagging', 'those that lag'],
            ['trouble', 'those in trouble'],
          ]}
        />
      </form>
      {error && <Failed error={error} />}
      {!cursors ? (
        !error && <Loading />
      ) : cursors.length === 0 ? (
        <Panel>
          <Empty hint="ringlog cursor create trainer --type 'training.*'">No cursors yet. A reader that resumes after a restart has one:</Empty>
        </Panel>
      ) : (
        <Panel
          title={`${count(rows.length)} of ${count(total)}`}
          extra={
            holder && s && held(holder, s) > 0 && (
              <span class="quiet-text">
                <Link to="cursors" part={holder.name}>
                  {holder.name}
                </Link>{' '}
                holds {plural(held(holder, s), 'event')}: what comes after offset {count(passed(holder))} is kept for it
              </span>
            )
          }
        >
          <Rows<Cursor>
            label="Cursors and groups"
            rows={rows}
            id={(c) => c.name}
            version={dead}
            open={(c) => (location.hash = href('cursors', c.name))}
            tall
            columns={[
              { name: 'Name', width: 'minmax(11rem,1.4fr)', by: (c) => c.name, cell: (c) => <a href={href('cursors', c.name)}>{c.name}</a> },
              { name: 'Kind', width: '4.5rem', by: (c) => (c.group ? 1 : 0), cell: (c) => (c.group ? 'group' : 'cursor') },
              { name: 'State', width: '10.5rem', cell: (c) => <State c={c} dead={dead.has(c.name)} /> },
              { name: 'Lag', right: true, width: '6rem', by: lag, cell: lagText },
              { name: 'Lag, time', right: true, width: '6.5rem', by: (c) => c.lag_seconds ?? 0, cell: (c) => (lag(c) ? duration(c.lag_seconds) : '–') },
              { name: 'Committed', right: true, width: '7rem', by: (c) => c.committed, cell: (c) => count(c.committed) },
              { name: 'Last used', width: '9.5rem', by: (c) => c.touched, cell: (c) => <Time at={c.touched} /> },
              { name: 'Filter', width: 'minmax(8rem,1.6fr)', cell: (c) => <span title={filterText(c.filter)}>{filterText(c.filter)}</span> },
            ]}
          />
        </Panel>
      )}
    </Screen>
  );
}

interface GroupMember {
  member: string;
  since: string;
  last_seen: string;
  pending: number;
  oldest_pending_ms?: number;
  delivered: number;
  acked: number;
  nacked: number;
  expired: number;
}

function OneCursor({ name }: { name: string }) {
  const cursor = useLoad<Cursor>(`/v1/cursors/${encodeURIComponent(name)}`, 2000);
  // What the leader alone knows of a group.
  const group = useLoad<Cursor>(cursor.data?.group ? `/v1/groups/${encodeURIComponent(name)}` : undefined, 2000);
  const members = useLoad<{ members: GroupMember[] }>(cursor.data?.group ? `/v1/groups/${encodeURIComponent(name)}/members` : undefined, 2000);
  const { act, open } = useAct();
  const past = useRef<{ at: number[]; events: number[]; seconds: number[] }>({ at: [], events: [], seconds: [] });
  const c = cursor.data;
  useEffect(() => {
    if (!c) return;
    const p = past.current;
    p.at = [...p.at, Date.now() / 1000].slice(-900);
    p.events = [...p.events, lag(c)].slice(-900);
    p.seconds = [...p.seconds, lag(c) ? (c.lag_seconds ?? 0) : 0].slice(-900);
  }, [c]);
  const s = status.value;
  const info = group.data?.group ?? c?.group;
  const audit = useLoad<Audit>(auditPath, 30_000);
  const { types: none, alone } = useMemo(() => unfed(audit.data), [audit.data]);
  const dead = alone.has(name);
  // A pattern takes types that come later, too; one that is named may be misspelt.
  const named = none.get(name)?.filter((t) => c?.filter?.types?.includes(t.name)) ?? [];
  return (
    <Screen
      title={name}
      about={c ? (c.group ? 'A group: its members share the events.' : 'A cursor: one reader resumes from it.') : ''}
      actions={
        c && (
          <>
            <a class="button" href={href('live', '', { ...firsts(c), from: c.committed + 1 })}>
              What comes next
            </a>
            <button type="button" onClick={() => open((close) => <Seek c={c} close={close} done={cursor.again} />)}>
              Seek or skip
            </button>
            <button type="button" onClick={() => open((close) => <Remove c={c} close={close} />)}>
              Remove
            </button>
          </>
        )
      }
      command={command(c?.group ? 'group' : 'cursor', 'info', name)}
    >
      {act}
      <View of={cursor}>
        {(c) => (
          <>
            {named.length > 0 ? (
              <p class="result" data-test="quiet">
                <Sign tone="warn" /> Its filter has {list(named.map((t) => t.name + (t.class === 'unknown' ? ' (not in the catalogue)' : '')))}: nothing in the log has emitted {named.length === 1 ? 'it' : 'them'}. See <Link to="wiring" part={named[0]!.name}>Wiring</Link>.
              </p>
            ) : dead && (
              <p class="result" data-test="quiet">
                <Sign tone="warn" /> Nothing in the log matches its filter.
              </p>
            )}
            <div class="stats">
              <Stat name="Lag" value={lagText(c)} unit={noun(lag(c), 'event')} tone={c.stalled || c.backpressure?.since ? 'warn' : undefined} note={<State c={c} dead={dead} idle={group.data?.group?.members === 0} />} />
              <Stat name="Oldest waits for" value={lag(c) ? duration(c.lag_seconds) : '–'} />
              <Stat name="Committed" value={count(c.committed)} note={s && `of ${count(s.last_offset)}${held(c, s) ? `, holds ${plural(held(c, s), 'event')}` : ''}`} />
              {info && <Stat name="Members" value={count(info.members)} note={info.coordinator && `coordinated by ${info.coordinator}`} tone={info.members === 0 && lag(c) > 0 ? 'warn' : undefined} />}
              {info && <Stat name="Pending" value={count(info.pending)} note="not acknowledged" />}
              {info && <Stat name="Redelivering" value={count(info.redelivering)} note="failed or timed out" />}
            </div>
            {group.error && <Failed error={group.error} />}
            <div class="columns">
              <Panel title="Lag in events, while this page is open">
                <Plot label={`Lag of ${name} in events`} unit="events" at={past.current.at} lines={[{ name: 'lag', values: past.current.events }]} format={rateText} />
              </Panel>
              <Panel title="How old the oldest unread event is">
                <Plot label={`Lag of ${name} in time`} at={past.current.at} lines={[{ name: 'age', values: past.current.seconds }]} format={duration} />
              </Panel>
              <Panel title="Settings">
                <Facts
                  of={[
                    ['filter', filterText(c.filter)],
                    ['generation', c.generation ? `${c.generation} (how often it was opened)` : 'never opened'],
                    ['created', <Time at={c.created} />],
                    ['last used', <Time at={c.touched} />],
                    ['seeks', c.seeks || undefined],
                    ['gap', c.gap && `${c.gap.from} to ${c.gap.to} (${c.gap.reason})`],
                    ['ack wait', c.group?.ack_wait],
                    ['deliveries', c.group && `${c.group.max_deliver}, then a dead letter`],
                    ['pending at most', c.group && count(c.group.max_pending)],
                    ['slowed down', c.backpressure && `from ${count(c.backpressure.activate_at)}, until ${plural(c.backpressure.release_at, 'event')}`],
                    ['dead letters', <Link to="letters" query={{ cursor: name }}>those of {name}</Link>],
                  ]}
                />
              </Panel>
            </div>
            {c.group && (
              <Panel title="Members">
                <View of={members} empty={(m) => m.members.length === 0 && <Empty hint={command('react', ['--group', name], '--', 'cat')}>Nobody is a member now, so nothing is delivered. To join:</Empty>}>
                  {(m) => (
                    <Table<GroupMember>
                      label={`Members of ${name}`}
                      rows={m.members}
                      id={(m) => m.member}
                      columns={[
                        { name: 'Member', cell: (m) => m.member },
                        { name: 'Since', cell: (m) => <Time at={m.since} /> },
                        { name: 'Last seen', cell: (m) => <Time at={m.last_seen} /> },
                        { name: 'Pending', right: true, cell: (m) => count(m.pending) },
                        { name: 'Oldest', right: true, cell: (m) => (m.pending ? duration((m.oldest_pending_ms ?? 0) / 1000) : '–') },
                        { name: 'Delivered', right: true, cell: (m) => count(m.delivered) },
                        { name: 'Acknowledged', right: true, cell: (m) => count(m.acked) },
                        { name: 'Failed', right: true, cell: (m) => count(m.nacked) },
                        { name: 'Timed out', right: true, cell: (m) => count(m.expired) },
                      ]}
                    />
                  )}
                </View>
                <Command text={command('group', 'members', name)} />
              </Panel>
            )}
            <Explain cursor={name} />
          </>
        )}
      </View>
    </Screen>
  );
}

// firsts is the filter of a cursor as the filters of Live.
function firsts(c: Cursor): Record<string, string> {
  const f = c.filter ?? {};
  const out: Record<string, string> = {};
  for (const [k, v] of [['type', f.types], ['category', f.categories], ['source', f.sources], ['key', f.keys], ['correlation_id', f.correlation_ids]] as const) if (v?.length) out[k] = v.join(',');
  return out;
}

// Seek moves a cursor. The preview says what the move means: the event that it would get next, and how many are read
// again, or never.
function Seek({ c, close, done }: { c: Cursor; close: () => void; done: () => void }) {
  const [to, setTo] = useState('');
  const [preview, setPreview] = useState<{ to: string; next?: StoredEvent; offset: number; last: number; error?: ErrorDetail }>();
  useEffect(() => {
    setPreview(undefined);
    if (!to.trim()) return;
    const abort = new AbortController();
    const timer = setTimeout(async () => {
      const last = status.value?.last_offset ?? 0;
      try {
        if (to === 'end') return setPreview({ to, offset: last + 1, last });
        // The event at the position itself, whatever the filter, is where the cursor would continue.
        const lines = await fetchLines(path('/v1/events', { from: to.trim(), limit: 1 }), abort.signal);
        const event = lines.find((l) => 'offset' in l) as StoredEvent | undefined;
        setPreview({ to, next: event, offset: event?.offset ?? last + 1, last });
      } catch (e) {
        if (!abort.signal.aborted) setPreview({ to, offset: 0, last, error: asDetail(e) });
      }
    }, 250);
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [to]);
  const moved = preview && !preview.error ? preview.offset - 1 - c.committed : 0;
  return (
    <Act
      title={`Move ${c.name}`}
      label={moved > 0 ? 'Skip' : 'Seek'}
      danger={moved > 0}
      pressed
      ready={!!preview && !preview.error}
      command={command('cursor', 'seek', c.name, ['--to', to || 'WHERE'])}
      close={close}
      done={done}
      run={async () => {
        const after = await post<Cursor>(`/v1/cursors/${encodeURIComponent(c.name)}/seek`, { to: to.trim() });
        return <>Committed offset: {count(after.committed)}. It lags by {lagText(after)} {noun(lag(after), 'event')} now.</>;
      }}
    >
      <p>Committed offset: {count(c.committed)}</p>
      <label class="field">
        <span>To: start, end, an offset, -100 (before the end), @2026-11-27T18:35:00Z, or an age such as 36h</span>
        <input name="to" value={to} onInput={(e) => setTo(e.currentTarget.value)} autofocus spellcheck={false} autocomplete="off" />
      </label>
      <div class="chips">
        {['start', 'end', '1h', '24h'].map((w) => (
          <button type="button" key={w} class="chip" onClick={() => setTo(w)}>
            {w}
          </button>
        ))}
      </div>
      {to && !preview && <p role="status">Looking …</p>}
      {preview?.error && <Failed error={preview.error} />}
      {preview && !preview.error && (
        <div class="result" role="status" data-test="seek-preview">
          {moved === 0 ? (
            'It is there already.'
          ) : moved < 0 ? (
            <>
              <Sign tone="idle" /> Back by {plural(-moved, 'offset')}: matching events among them are delivered <strong>again</strong>.
            </>
          ) : (
            <>
              <Sign tone="warn" /> Skips {plural(moved, 'offset')}: matching events among them are <strong>never delivered</strong>.
            </>
          )}
          <p>
            {preview.next ? (
              <>
                It continues at offset {preview.next.offset}, {preview.next.type} of <Time at={preview.next.appended_at} />.
              </>
            ) : (
              'It continues with what is appended from now on.'
            )}
          </p>
        </div>
      )}
    </Act>
  );
}

// fetchLines reads a short stream whole.
async function fetchLines(p: string, abort: AbortSignal): Promise<any[]> {
  return (await text(p, abort))
    .split('\n')
    .filter(Boolean)
    .map((l) => JSON.parse(l));
}

function Remove({ c, close }: { c: Cursor; close: () => void }) {
  const kind = c.group ? 'group' : 'cursor';
  return (
    <Act
      title={`Remove the ${kind} ${c.name}`}
      label="Remove"
      danger
      typed={c.name}
      close={close}
      command={command(kind, 'rm', c.name)}
      run={async () => {
        await call('DELETE', `/v1/${kind}s/${encodeURIComponent(c.name)}`);
        location.hash = href('cursors');
        return 'It is removed.';
      }}
    >
      <p>
        Its position, {count(c.committed)}, is lost{c.group ? ', and its members stop' : ''}. What it holds of the log may be trimmed then.
      </p>
    </Act>
  );
}

