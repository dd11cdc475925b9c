import { findings } from '../findings';
import { bytes, count, duration, held, lag, lagText, noun, passed, plural, quorumText, rateText, since } from '../format';
import { href, latest, samples, status, statusError } from '../state';
import type { Chapter, Member } from '../types';
import { Badge, Command, cx, Empty, Failed, Loading, Panel, Screen, Sign, Stat, Table, Time, useLoad } from '../ui';
import { Spark } from '../spark';

export function Overview() {
  const s = status.value;
  const story = useLoad<{ history: Chapter[] }>('/v1/cluster/history?limit=200', 5000);
  const about = 'Who leads, who votes, and what is wrong now.';
  if (!s) {
    return (
      <Screen title="Overview" about={about}>
        {statusError.value ? <Failed error={statusError.value} /> : <Loading />}
      </Screen>
    );
  }
  const elected = story.data?.history.findLast((c) => c.type === 'LEADER_ELECTED' && c.subject === s.leader_id);
  const wrong = findings(s);
  const worst = wrong[0]?.tone ?? 'ok';
  const margin = s.quorum.margin;
  const dead = s.dead_letters.count - s.dead_letters.redriven;
  const series = (name: string) => samples.value.series[name] ?? [];
  // The list is by name. It has the cursors that are stalled, and those that have passed least.
  const [first, ...rest] = s.cursors;
  const lagging = first && rest.reduce((a, b) => (lag(b) > lag(a) ? b : a), first);
  const holding = first && rest.reduce((a, b) => (passed(b) < passed(a) ? b : a), first);
  const kept = holding ? held(holding, s) : 0;
  return (
    <Screen title="Overview" about={about} command="ringlog cluster status">
      <div class="overview-top">
        <Panel>
          <div class={cx('margin', s.leader_id ? (margin > 0 ? 'ok' : margin === 0 ? 'warn' : 'bad') : 'bad')} data-test="margin">
            <strong>{s.leader_id ? Math.max(0, margin) : '–'}</strong>
            <span>
              {!s.leader_id ? (
                <>
                  <Sign tone="bad" /> no leader: nothing is accepted
                </>
              ) : margin < 0 ? (
                <>
                  <Sign tone="bad" /> no quorum
                </>
              ) : (
                <>
                  <Sign tone={margin > 0 || s.quorum.voters === 1 ? 'ok' : 'warn'} /> {margin === 1 ? 'voter may fail' : 'voters may fail'} without an interruption
                </>
              )}
            </span>
            <small>
              {quorumText(s.quorum)}
            </small>
          </div>
          <div class="leader" data-test="leader">
            <span class="name">Leader</span>
            <strong>{s.leader_id || 'none'}</strong>
            <small>
              term {s.term}
              {elected && s.leader_id && (
                <>
                  {' '}
                  · since <Time at={elected.at} /> ({duration(since(elected.at))})
                </>
              )}
            </small>
            <small>
              <a href={href('story')}>the cluster's story</a>
            </small>
          </div>
        </Panel>
        <Panel title="What is wrong now" extra={<Badge tone={worst}>{wrong.length ? count(wrong.length) : 'nothing'}</Badge>} wide>
          {wrong.length === 0 ? (
            <Empty>Nothing. All voters answer, every cursor moves, and no dead letters wait.</Empty>
          ) : (
            <ul class="findings" data-test="findings">
              {wrong.slice(0, 30).map((f) => (
                <li key={f.what} class={f.tone}>
                  <Sign tone={f.tone} />
                  <div>
                    <strong>
                      <span class="sr">{f.tone === 'bad' ? 'Critical: ' : 'Warning: '}</span>
                      {f.to ? <a href={f.to}>{f.what}</a> : f.what}
                    </strong>
                    <p>{f.remedy}</p>
                    {f.command && <code>{f.command}</code>}
                  </div>
                </li>
              ))}
            </ul>
          )}
        </Panel>
      </div>

      <div class="stats">
        <Stat name="Published" value={rateText(latest('publish'))} unit="events/s" to={href('plots')} note={<Spark values={series('publish')} />} />
        <Stat name="Read here" value={rateText(latest('read'))} unit="events/s" to={href('plots')} note={<Spark values={series('read')} />} />
        <Stat
          name="Largest lag"
          value={lagging ? lagText(lagging) : '–'}
          unit={lagging && noun(lag(lagging), 'event')}
          to={lagging ? href('cursors', lagging.name) : href('cursors')}
          tone={s.cursors.some((c) => c.stalled || c.backpressure?.since) ? 'warn' : undefined}
          note={<span data-test="lagging">{lagging ? lagging.name : 'no cursors'}</span>}
        />
        <Stat name="Dead letters" value={count(dead)} to={href('letters')} tone={dead ? 'warn' : undefined} note={<span>{count(s.dead_letters.redriven)} being redriven</span>} />
        <Stat name="Log" value={count(s.last_offset - s.first_offset + 1)} unit={noun(s.last_offset - s.first_offset + 1, 'event')} to={href('cursors')} note={<span title={bytes(s.log.log_bytes)}>{kept > 0 ? `${count(kept)} held by ${holding!.name}` : bytes(s.log.log_bytes)}</span>} />
        <Stat name="Cursors and groups" value={count(s.cursors_total)} to={href('cursors')} note={<span>{plural(s.event_subscription_status.clients, 'client')} registered</span>} />
      </div>

      <Panel title="Members" extra={<span class="quiet-text">as {s.node_id} sees them</span>}>
        <Table<Member>
          label="Members"
          rows={s.members}
          id={(m) => m.id}
          columns={[
            { name: 'Member', cell: (m) => <a href={href('members')}>{m.id}</a> },
            {
              name: 'State',
              cell: (m) =>
                m.healthy ? (
                  <Badge tone="ok">{m.id === s.leader_id ? 'leads' : m.voter ? 'votes' : 'follows, no vote'}</Badge>
                ) : (
                  <Badge tone="bad">does not answer{m.unreachable === 'raft' ? ' over raft' : ''}</Badge>
                ),
            },
            { name: 'Last contact', right: true, cell: (m) => (m.id === s.node_id ? 'this node' : m.last_contact_ms === undefined || m.last_contact_ms < 0 ? 'never' : `${duration(m.last_contact_ms / 1000)} ago`) },
            { name: 'Lag', right: true, cell: (m) => (m.trailing_entries ? plural(m.trailing_entries, 'entry', 'entries') : '–') },
            { name: 'Disk free', right: true, cell: (m) => (m.disk ? <span class={cx(m.disk.full && 'bad-text')}>{m.disk.full && <Sign tone="bad" />} {bytes(m.disk.free_bytes)}</span> : '–') },
            { name: 'Version', cell: (m) => m.version ?? '–' },
            { name: 'HTTP', cell: (m) => <a href={m.http.replace(/\/$/, '') + '/ui/'}>{m.http.replace(/^https?:\/\//, '')}</a> },
          ]}
        />
        <p class="note">
          Cluster <code>{s.cluster_id}</code>. This is {s.node_id}, {s.role}, version {s.version}, up {duration(s.uptime_seconds)}.
        </p>
      </Panel>
      {worst === 'bad' && <Command text="ringlog cluster outage" />}
    </Screen>
  );
}
