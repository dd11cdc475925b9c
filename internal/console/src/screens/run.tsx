import { useState } from 'preact/hooks';
import { path } from '../api';
import { command, count, duration } from '../format';
import { href, route, setQuery, status } from '../state';
import { Badge, Empty, Link, Panel, Screen, Sign, Stat, Table, Time, useLoad, View } from '../ui';

interface Chain {
  correlation_id: string;
  now: string;
  seconds: number;
  events: { offset: number; type: string; at: string; after_seconds: number; source?: string; key?: string }[];
  flows: {
    flow: string;
    starts: { offset: number; type: string; first: boolean }[];
    edges: { from: string; to: string; from_offset?: number; to_offset?: number; state: string; seconds: number; late?: boolean; condition?: string; basis?: string }[];
    next: { from: string; to: string; from_offset: number; condition?: string; optional?: boolean; waiting_seconds: number; deadline_seconds?: number; overdue?: boolean }[];
    complete: boolean;
  }[];
  runs?: string[];
  outside?: number[];
  scope: { left_out?: number };
  beginning_trimmed: boolean;
  overdue: number;
}

export function Run() {
  const id = route.value.part;
  return id ? <OneRun id={id} /> : <FindRun />;
}

function FindRun() {
  const [id, setId] = useState('');
  // Runs of late: the newest events that name one.
  const overdue = status.value?.overdue_chains.list ?? [];
  return (
    <Screen title="Run" about="The events of a correlation id, compared with the documented flows." command={command('chain', id || 'RUN')}>
      <Ask id={id} type={setId} />
      <Panel title="Overdue runs">
        {overdue.length === 0 ? (
          <Empty hint="ringlog chain RUN">No run is overdue. Enter one above, or follow the link of an event's run.</Empty>
        ) : (
          <Table
            label="Overdue runs"
            rows={overdue}
            id={(o) => o.correlation_id + o.missing}
            columns={[
              { name: 'Run', cell: (o) => <Link to="run" part={o.correlation_id}>{o.correlation_id}</Link> },
              { name: 'Flow', cell: (o) => o.flow },
              { name: 'Missing', cell: (o) => o.missing },
              { name: 'Waiting', right: true, cell: (o) => duration(o.waiting_seconds) },
              { name: 'Due after', right: true, cell: (o) => duration(o.deadline_seconds) },
            ]}
          />
        )}
      </Panel>
    </Screen>
  );
}

// Ask is the field for a run.
function Ask({ id, type }: { id: string; type: (id: string) => void }) {
  return (
    <Panel>
      <form
        class="inline"
        onSubmit={(e) => {
          e.preventDefault();
          if (id.trim()) location.hash = href('run', id.trim());
        }}
      >
        <label class="field">
          <span>Correlation id, or fields such as config_key=hex8_2p</span>
          <input name="run" value={id} onInput={(e) => type(e.currentTarget.value)} size={36} spellcheck={false} />
        </label>
        <button type="submit" class="primary">
          Show
        </button>
      </form>
    </Panel>
  );
}

function OneRun({ id }: { id: string }) {
  const [asked, ask] = useState(id);
  const flow = route.value.query.get('flow') ?? '';
  const chain = useLoad<Chain>(path(`/v1/chain/${encodeURIComponent(id)}`, { flow }), 4000);
  return (
    <Screen
      title={`Run ${id}`}
      about={<Link to="live" query={{ correlation_id: id, from: 'start' }}>its events in Live</Link>}
      command={command('chain', id, ['--flow', flow])}
      actions={
        (chain.data?.flows.length ?? 0) > 1 || flow ? (
          <label class="field">
            <span>Flow</span>
            <select value={flow} onChange={(e) => setQuery({ flow: e.currentTarget.value })}>
              <option value="">all</option>
              {[...new Set([...(flow ? [flow] : []), ...(chain.data?.flows.map((f) => f.flow) ?? [])])].map((f) => (
                <option key={f}>{f}</option>
              ))}
            </select>
          </label>
        ) : undefined
      }
    >
      {chain.error && !chain.data && <Ask id={asked} type={ask} />}
      <View of={chain}>
        {(c) => (
          <>
            <div class="stats">
              <Stat name="Events" value={count(c.events.length + (c.scope.left_out ?? 0))} note={c.beginning_trimmed ? 'earlier ones may be trimmed' : ''} />
              <Stat name="From first to last" value={duration(c.seconds)} />
              <Stat name="Overdue" value={count(c.overdue)} tone={c.overdue ? 'bad' : undefined} />
              <Stat name="Flows" value={count(c.flows.length)} note={`${count(c.flows.filter((f) => f.complete).length)} complete`} />
            </div>
            {!!c.runs?.length && (
              <Panel title="Runs that its payloads name">
                <p class="chips">
                  {c.runs.map((r) => (
                    <a class="chip" key={r} href={href('run', r)}>
                      {r}
                    </a>
                  ))}
                </p>
              </Panel>
            )}
            {c.flows.map((f) => (
              <Panel key={f.flow} title={f.flow} extra={<Badge tone={f.complete ? 'ok' : f.next.some((n) => n.overdue) ? 'bad' : 'idle'}>{f.complete ? 'complete' : f.next.some((n) => n.overdue) ? 'overdue' : 'under way'}</Badge>}>
                <Timeline chain={c} flow={f} />
              </Panel>
            ))}
            <Panel title={c.flows.length ? 'All events of the run' : 'Events: no flow has them'}>
              <Table
                label="Events of the run"
                rows={c.events}
                id={(e) => e.offset}
                columns={[
                  { name: 'Offset', right: true, cell: (e) => <a href={href('event', String(e.offset))}>{e.offset}</a> },
                  { name: 'Time', cell: (e) => <Time at={e.at} ms /> },
                  { name: 'After', right: true, cell: (e) => `+${duration(e.after_seconds)}` },
                  { name: 'Type', cell: (e) => e.type },
                  { name: 'Source', cell: (e) => e.source },
                  { name: 'Part of a flow', cell: (e) => (c.outside?.includes(e.offset) ? 'no' : 'yes') },
                ]}
              />
            </Panel>
          </>
        )}
      </View>
    </Screen>
  );
}

// Timeline has the stages that were reached, in the order of the log, and then what is missing.
function Timeline({ chain, flow }: { chain: Chain; flow: Chain['flows'][number] }) {
  const at = new Map(chain.events.map((e) => [e.offset, e]));
  // Each event that is a stage, with the edges that lead to it.
  const stages = new Map<number, { type: string; start?: { first: boolean }; edges: Chain['flows'][number]['edges'] }>();
  for (const s of flow.starts) stages.set(s.offset, { type: s.type, start: s, edges: [] });
  for (const e of flow.edges) {
    if (!e.to_offset) continue;
    const stage = stages.get(e.to_offset) ?? { type: e.to, edges: [] };
    stage.edges.push(e);
    stages.set(e.to_offset, stage);
  }
  const lacking = flow.edges.filter((e) => e.state === 'skipped' && !e.to_offset);
  return (
    <ol class="stages">
      {[...stages].toSorted(([a], [b]) => a - b).map(([offset, s]) => {
        const late = s.edges.some((e) => e.late);
        const odd = s.edges.some((e) => e.state === 'early' || e.state === 'skipped');
        return (
          <li key={offset}>
            <span class="at">
              <Time at={at.get(offset)?.at} ms />
            </span>
            <Sign tone={late || odd ? 'warn' : 'ok'} />
            <span>
              <a href={href('event', String(offset))}>{s.type}</a>
              <small>
                {s.start && !s.start.first && ' begins in the middle: what is before it was not published with this run'}
                {s.edges.map((e) => (
                  <span key={e.from}>
                    {' '}
                    {e.state === 'early' ? `${duration(-e.seconds)} before ${e.from}, which should come first` : e.state === 'skipped' ? `without ${e.from}, which should come first` : `${duration(e.seconds)} after ${e.from}`}
                    {e.state === 'again' && ', again'}
                    {e.late && ', late'}
                    {e.condition && ` · if ${e.condition}`}
                  </span>
                ))}
              </small>
            </span>
          </li>
        );
      })}
      {lacking.map((e) => (
        <li key={e.from + e.to} class="missing">
          <span class="at">–</span>
          <Sign tone="warn" />
          <span>
            {e.to} <small>was left out after {e.from}</small>
          </span>
        </li>
      ))}
      {flow.next.map((n) => (
        <li key={`${n.from_offset}-${n.to}`} class={n.overdue ? 'overdue' : n.optional ? '' : 'missing'}>
          <span class="at">{duration(n.waiting_seconds)}</span>
          <Sign tone={n.overdue ? 'bad' : n.optional ? 'idle' : 'warn'} />
          <span>
            {n.to}{' '}
            <small>
              {n.overdue ? `is overdue: it was due ${duration(n.deadline_seconds)} after ${n.from}` : n.optional ? `may follow ${n.from}` : `is missing after ${n.from}`}
              {n.condition && ` · if ${n.condition}`}
            </small>
          </span>
        </li>
      ))}
    </ol>
  );
}
