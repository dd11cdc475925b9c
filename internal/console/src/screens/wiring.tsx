import { path } from '../api';
import { command, count, duration, filterText, list, noun, plural, since } from '../format';
import { href, route } from '../state';
import type { Subscription } from '../types';
import { Badge, Choice, Empty, Panel, Rows, Screen, Search, Stat, Table, Time, useLoad, View, type Tone } from '../ui';

interface Wire {
  component: string;
  basis: string;
  pattern?: string;
  places?: string[];
  events?: number;
}

interface AuditedType {
  name: string;
  class: string;
  category?: string;
  emitters: Wire[];
  subscribers: Wire[];
  reserved?: boolean;
  critical?: boolean;
  alias_of?: string;
  likely?: string[];
}

interface Audit {
  scope: { events: number; subscriptions: number };
  totals: Record<string, number>;
  types: AuditedType[];
  catch_all: string[];
}

interface Client {
  id: string;
  host?: string;
  pid?: number;
  version?: string;
  seen_at: string;
  expires_at: string;
  subscriptions: (Subscription & { name: string; health?: { breaker?: string; timed_out?: number; failed_attempts?: number; last_error?: string } })[];
}

const classes: Record<string, { tone: Tone; word: string }> = {
  connected: { tone: 'ok', word: 'connected' },
  orphan: { tone: 'warn', word: 'orphan: nobody listens' },
  dead: { tone: 'warn', word: 'dead: nobody emits it' },
  unwired: { tone: 'idle', word: 'neither emitted nor listened to' },
  alias: { tone: 'idle', word: 'alias' },
  unknown: { tone: 'warn', word: 'not in the catalogue' },
};

// classOf says how a type is wired. Readers of everything do not count for the audit, but they do hear it.
const classOf = (t: { class: string }, a: Audit) => (t.class === 'orphan' && a.catch_all.length ? { tone: 'idle' as Tone, word: 'catch-all readers only' } : (classes[t.class] ?? { tone: 'idle' as Tone, word: t.class }));

// first orders the graph: what a subscription names and nobody emits, then what nobody listens to, then the rest. A pattern
// listens to types of which one expects no events.
const first = (t: AuditedType) => (t.emitters.length === 0 && t.subscribers.some((w) => !w.pattern) ? 0 : t.class === 'orphan' && !t.reserved ? 1 : 2);

// How many types the graph has.
const drawnAtMost = 20;

const events = (wires: Wire[]) => wires.reduce((sum, w) => sum + (w.events ?? 0), 0);
const names = (wires: Wire[]) => [...new Set(wires.map((w) => w.component))];

export function Wiring() {
  const q = route.value.query;
  const live = q.get('live') ?? 'true';
  const audit = useLoad<Audit>(path('/v1/audit', { live: live === 'true' ? 'true' : '' }), 10000);
  const clients = useLoad<{ clients: Client[]; unheard: { name: string; client: string; host?: string; since: string }[] }>('/v1/clients?limit=1000', 5000);
  const focus = route.value.part;
  return (
    <Screen title="Wiring" about="Who emits each type, and who listens." command={command('audit', live === 'true' ? '--live' : '')}>
      <form class="filters" onSubmit={(e) => e.preventDefault()} role="search" aria-label="Filter types">
        <Search name="name" label="Type or component" />
        <Choice
          name="class"
          label="Show"
          values={[
            ['', 'all types'],
            ['orphan', 'orphans: nobody listens by name'],
            ['dead', 'dead: nobody emits'],
            ['connected', 'connected'],
            ['unknown', 'not in the catalogue'],
            ['unwired', 'neither'],
            ['alias', 'aliases'],
          ]}
        />
        <Choice
          name="own"
          label="ringlog's own orphans"
          values={[
            ['', 'left out'],
            ['true', 'shown'],
          ]}
        />
        <Choice
          name="live"
          label="From"
          values={[
            ['', 'the log and registered clients'],
            ['false', 'documents, too'],
          ]}
        />
      </form>
      <View of={audit} empty={(a) => a.types.length === 0 && <Panel><Empty hint="ringlog audit">Nothing is published or subscribed to yet.</Empty></Panel>}>
        {(a) => {
          const text = (q.get('name') ?? '').toLowerCase();
          const cls = q.get('class') ?? '';
          // That nobody listens to what the cluster says of itself is no fault. Who looks for it by name finds it.
          const types = a.types.filter((t) => q.get('own') || text || !t.reserved || t.class !== 'orphan');
          const rows = types.filter(
            (t) =>
              (!cls || t.class === cls) &&
              (!text || t.name.toLowerCase().includes(text) || [...t.emitters, ...t.subscribers].some((w) => w.component.toLowerCase().includes(text))),
          );
          const chosen = a.types.find((t) => t.name === focus);
          const drawn = chosen ? [chosen] : rows.filter((t) => t.emitters.length + t.subscribers.length > 0).toSorted((x, y) => first(x) - first(y) || events(y.emitters) - events(x.emitters)).slice(0, drawnAtMost);
          const total = (c: string) => types.filter((t) => t.class === c).length;
          return (
            <>
              <div class="stats">
                {Object.keys(classes)
                  .filter(total)
                  .map((c) => {
                    const { tone, word } = classOf({ class: c }, a);
                    return <Stat key={c} name={word} value={count(total(c))} tone={tone === 'warn' ? 'warn' : undefined} to={href('wiring', '', { class: c, live: live === 'true' ? '' : live, own: q.get('own') ?? '' })} />;
                  })}
              </div>
              <Panel title={chosen ? chosen.name : 'Graph: what nobody emits, what nobody listens to, then the busiest'} extra={chosen ? <a href={href('wiring', '', { live: live === 'true' ? '' : live })}>all types</a> : <span class="quiet-text">{count(drawn.length)} of {plural(rows.length, 'type')}, from {plural(a.scope.events, 'event')} and {plural(a.scope.subscriptions, 'subscription')}</span>}>
                <Graph types={drawn} />
                {a.catch_all.length > 0 && <p class="note">{list(a.catch_all)} {noun(a.catch_all.length, 'listens', 'listen')} to everything, and {noun(a.catch_all.length, 'is', 'are')} not drawn.</p>}
              </Panel>
              <Panel title={plural(rows.length, 'type')}>
                {rows.length === 0 && <Empty>No matches.</Empty>}
                <Rows<AuditedType>
                  label="Types"
                  version={route.value}
                  rows={rows}
                  id={(t) => t.name}
                  selected={focus}
                  open={(t) => (location.hash = href('wiring', t.name, Object.fromEntries(q)))}
                  columns={[
                    { name: 'Type', width: 'minmax(14rem,1.2fr)', by: (t) => t.name, cell: (t) => <a href={href('wiring', t.name, Object.fromEntries(q))}>{t.name}</a> },
                    { name: 'Wired', width: '14.5rem', by: (t) => t.class, cell: (t) => <Badge tone={classOf(t, a).tone}>{classOf(t, a).word}</Badge> },
                    { name: 'Events', right: true, width: '5rem', by: (t) => events(t.emitters), cell: (t) => count(events(t.emitters)) },
                    { name: 'Emitted by', width: 'minmax(8rem,1fr)', cell: (t) => names(t.emitters).join(', ') || '–' },
                    { name: 'Listened to by', width: 'minmax(8rem,1fr)', cell: (t) => list([...names(t.subscribers), ...a.catch_all]) || '–' },
                  ]}
                />
              </Panel>
            </>
          );
        }}
      </View>
      <Panel title="Registered clients">
        <View of={clients} empty={(c) => c.clients.length === 0 && c.unheard.length === 0 && <Empty hint="ringlog clients">No client has registered. Routers and the Python package do it by themselves.</Empty>}>
          {(c) => (
            <>
              {c.unheard.length > 0 && (
                <Table
                  label="Subscriptions without a listener"
                  rows={c.unheard}
                  id={(u) => u.name + u.client}
                  columns={[
                    { name: 'Nobody listens to', cell: (u) => <Badge tone="warn">{u.name}</Badge> },
                    { name: 'Lost client', cell: (u) => u.client },
                    { name: 'Host', cell: (u) => u.host },
                    { name: 'For', right: true, cell: (u) => duration(since(u.since)) },
                  ]}
                />
              )}
              <Table
                label="Clients"
                rows={c.clients.flatMap((client) => client.subscriptions.map((s) => ({ client, s })))}
                id={({ client, s }) => client.id + '/' + s.name}
                columns={[
                  { name: 'Client', cell: ({ client }) => client.id },
                  { name: 'Host', cell: ({ client }) => `${client.host ?? ''}${client.pid ? ':' + client.pid : ''}` },
                  { name: 'Subscription', cell: ({ s }) => <>{s.name}{s.critical && <small> critical</small>}</> },
                  { name: 'State', cell: ({ s }) => <Badge tone={s.state === 'attached' ? 'ok' : 'warn'}>{s.state ?? 'unknown'}</Badge> },
                  { name: 'Listens to', cell: ({ s }) => filterText(s.filter) },
                  { name: 'Cursor', cell: ({ s }) => s.cursor && <a href={href('cursors', s.cursor)}>{s.cursor}</a> },
                  { name: 'Breaker', cell: ({ s }) => (s.health?.breaker === 'open' ? <Badge tone="warn">open</Badge> : (s.health?.breaker ?? '–')) },
                  { name: 'Failed', right: true, cell: ({ s }) => <span title={s.health?.last_error}>{count(s.health?.failed_attempts)}</span> },
                  { name: 'Seen', cell: ({ client }) => <Time at={client.seen_at} /> },
                ]}
              />
            </>
          )}
        </View>
      </Panel>
    </Screen>
  );
}

const clip = (s: string, n: number) => (s.length > n ? s.slice(0, n - 1) + '…' : s);

// Graph draws emitters, types and listeners in three columns. The table below has the same.
function Graph({ types }: { types: AuditedType[] }) {
  if (types.length === 0) return <Empty>Nothing to draw.</Empty>;
  const emitters = [...new Set(types.flatMap((t) => names(t.emitters)))].slice(0, 40);
  const listeners = [...new Set(types.flatMap((t) => names(t.subscribers)))].slice(0, 40);
  const most = Math.max(emitters.length, types.length, listeners.length);
  const height = most * 24 + 30;
  const y = (i: number, of: number) => 34 + (i + 0.5) * ((height - 30) / Math.max(1, of)) - 4;
  const curve = (x1: number, y1: number, x2: number, y2: number) => `M${x1} ${y1}C${(x1 + x2) / 2} ${y1} ${(x1 + x2) / 2} ${y2} ${x2} ${y2}`;
  const top = Math.max(1, ...types.flatMap((t) => t.emitters.map((w) => w.events ?? 0)));
  const width = (n: number | undefined) => 1 + 4 * Math.sqrt((n ?? 0) / top);
  return (
    <div class="table" tabIndex={0} role="region" aria-label="Graph of the wiring">
      <svg class="graph" viewBox={`0 0 1000 ${height + 8}`} role="group" aria-label={`Who emits ${plural(types.length, 'type')}, and who listens; the table below has the same`}>
        <text x="0" y="14" class="axis">Emit</text>
        <text x="500" y="14" class="axis" text-anchor="middle">Type, events in the log</text>
        <text x="1000" y="14" class="axis" text-anchor="end">Listen</text>
        {types.map((t, i) => {
          const at = y(i, types.length);
          const n = events(t.emitters);
          return (
            <g key={t.name}>
              {t.emitters.map((w) => {
                const e = emitters.indexOf(w.component);
                return e >= 0 && <path key={'e' + w.component + w.basis} d={curve(250, y(e, emitters.length), 370, at)} class="edge" stroke-width={width(w.events)} />;
              })}
              {t.subscribers.map((w) => {
                const l = listeners.indexOf(w.component);
                return l >= 0 && <path key={'l' + w.component + w.basis} d={curve(630, at, 750, y(l, listeners.length))} class="edge" stroke-width="1.5" />;
              })}
              <a href={href('wiring', t.name)}>
                <rect x="370" y={at - 9} width="260" height="18" rx="4" class={'node ' + (classes[t.class]?.tone ?? '')} stroke-dasharray={t.class === 'connected' ? undefined : '5 3'} />
                <text x="500" y={at + 4} text-anchor="middle">
                  {t.class === 'connected' ? '' : '▲ '}
                  {clip(t.name, 28)}
                  {n ? ` · ${count(n)}` : ''}
                </text>
              </a>
            </g>
          );
        })}
        {emitters.map((e, i) => (
          <text key={e} x="244" y={y(i, emitters.length) + 4} text-anchor="end">
            <title>{e}</title>
            {clip(e, 32)}
          </text>
        ))}
        {listeners.map((l, i) => (
          <text key={l} x="756" y={y(i, listeners.length) + 4}>
            <title>{l}</title>
            {clip(l, 32)}
          </text>
        ))}
      </svg>
    </div>
  );
}

