import { useEffect, useState } from 'preact/hooks';
import { asDetail, call, lines, path, type ErrorDetail } from '../api';
import { bytes, command, count, duration, noun, plural, since } from '../format';
import { href, route } from '../state';
import { Act, Badge, Choice, Command, cx, Empty, Facts, Failed, Link, Loading, Panel, Rows, Screen, Search, Table, Time, Tree, useAct, useLoad, View, type Tone } from '../ui';

const tabs = [
  ['roles', 'Roles'],
  ['allocations', 'Allocations'],
  ['views', 'Views'],
  ['transfers', 'Transfers'],
  ['scheduled', 'Scheduled'],
] as const;

// Work has the leases and shares by which daemons coordinate.
export function Work() {
  const [tab = 'roles', ...rest] = route.value.part.split('/');
  const shown = tab || 'roles';
  return (
    <Screen title="Roles and work" about="Leases and shares by which daemons coordinate.">
      <nav class="tabs" aria-label="Kinds">
        {tabs.map(([t, title]) => (
          <a key={t} href={href('work', t)} aria-current={t === shown ? 'page' : undefined}>
            {title}
          </a>
        ))}
      </nav>
      {shown === 'roles' ? <Roles /> : shown === 'allocations' ? <Allocations /> : shown === 'views' ? <Views name={rest.join('/')} /> : shown === 'transfers' ? <Transfers /> : shown === 'scheduled' ? <Scheduled /> : <Empty>There is no page “{shown}”.</Empty>}
    </Screen>
  );
}

// many counts the rows of a page, of which there may be another.
const many = (n: number, next: string | undefined) => count(n) + (next ? '+' : '');

interface Role {
  role: string;
  holder: string;
  fence: number;
  ttl: string;
  since: string;
  renewed_at: string;
  expires_at: string;
  waiting: number;
}

function Roles() {
  const roles = useLoad<{ roles: Role[]; next?: string }>('/v1/roles?limit=1000', 2000);
  const { act, open } = useAct();
  return (
    <>
      {act}
      <View of={roles} empty={(r) => r.roles.length === 0 && <Panel><Empty hint="ringlog run --role PROMOTION_LEADER -- promoter">Nobody holds a role. A role has one holder at a time:</Empty></Panel>}>
        {(r) => (
          <Panel title={`${many(r.roles.length, r.next)} ${noun(r.roles.length, 'role is', 'roles are')} held`}>
            <Table<Role>
              label="Roles"
              rows={r.roles}
              id={(x) => x.role}
              columns={[
                { name: 'Role', cell: (x) => <strong>{x.role}</strong> },
                { name: 'Holder', cell: (x) => x.holder },
                { name: 'Since', cell: (x) => <Time at={x.since} /> },
                { name: 'Renewed', right: true, cell: (x) => `${duration(since(x.renewed_at))} ago` },
                { name: 'Lease', cell: (x) => x.ttl },
                { name: 'Fence', right: true, cell: (x) => <a href={href('event', String(x.fence))}>{x.fence}</a> },
                { name: 'Waiting', right: true, cell: (x) => count(x.waiting) },
                {
                  name: 'Actions',
                  cell: (x) => (
                    <button
                      type="button"
                      class="quiet"
                      aria-label={`Revoke ${x.role}`}
                      onClick={() =>
                        open((close) => (
                          <Act title={`Take ${x.role} from ${x.holder}`} label="Revoke" danger typed={x.role} close={close} done={roles.again} command={command('role', 'revoke', x.role, '--yes')} run={async () => {
                            await call('DELETE', path(`/v1/roles/${encodeURIComponent(x.role)}`, { fence: x.fence }));
                            return x.waiting ? 'The first that waits gets it.' : 'Nobody holds it now.';
                          }}>
                            <p>The holder learns of it with its next renewal; what it sends under its fence is refused at once.</p>
                          </Act>
                        ))
                      }
                    >
                      Revoke
                    </button>
                  ),
                },
              ]}
            />
          </Panel>
        )}
      </View>
      <Command text="ringlog role ls" />
    </>
  );
}

interface Resource {
  resource: string;
  capacity: number;
  unit?: string;
  preemptible?: boolean;
  granted: number;
  allocations: number;
  waiting: number;
}

interface Allocation {
  allocation: string;
  holder: string;
  amounts: Record<string, number>;
  priority: string;
  risen_to?: string;
  granted: boolean;
  ttl: string;
  since: string;
  expires_at?: string;
}

function Allocations() {
  const resources = useLoad<{ resources: Resource[] }>('/v1/resources?limit=1000', 2000);
  const allocations = useLoad<{ allocations: Allocation[]; next?: string }>('/v1/allocations?limit=1000', 2000);
  const { act, open } = useAct();
  return (
    <>
      {act}
      <Panel title="Resources">
        <View of={resources} empty={(r) => r.resources.length === 0 && <Empty hint="ringlog allocation resource set net:gpu-1 1000 --unit Mbit/s">No resource is declared. To declare one:</Empty>}>
          {(r) => (
            <Table<Resource>
              label="Resources"
              rows={r.resources}
              id={(x) => x.resource}
              columns={[
                { name: 'Resource', cell: (x) => <strong>{x.resource}</strong> },
                { name: 'Granted', right: true, cell: (x) => `${count(x.granted)} of ${count(x.capacity)} ${x.unit ?? ''}` },
                { name: 'Used', cell: (x) => <meter min={0} max={x.capacity} value={x.granted} aria-label={`${x.resource}: ${Math.round((x.granted / Math.max(1, x.capacity)) * 100)} % granted`} /> },
                { name: 'Share', right: true, cell: (x) => `${Math.round((x.granted / Math.max(1, x.capacity)) * 100)} %` },
                { name: 'Allocations', right: true, cell: (x) => count(x.allocations) },
                { name: 'Waiting', right: true, cell: (x) => (x.waiting ? <Badge tone="warn">{count(x.waiting)}</Badge> : 0) },
                { name: 'Preemptible', cell: (x) => (x.preemptible ? 'yes' : 'no') },
              ]}
            />
          )}
        </View>
        <Command text="ringlog allocation resource ls" />
      </Panel>
      <Panel title="Allocations">
        <View of={allocations} empty={(a) => a.allocations.length === 0 && <Empty hint="ringlog allocation request net:gpu-1=50 --ttl 1h">Nothing is granted, and nothing waits.</Empty>}>
          {(a) => (
            <Table<Allocation>
              label="Allocations"
              rows={a.allocations}
              id={(x) => x.allocation}
              columns={[
                { name: 'Allocation', cell: (x) => x.allocation },
                { name: 'Holder', cell: (x) => x.holder },
                { name: 'State', cell: (x) => (x.granted ? <Badge tone="ok">granted</Badge> : <Badge tone="idle">waits</Badge>) },
                { name: 'Amounts', cell: (x) => Object.entries(x.amounts).map(([k, v]) => `${k} ${count(v)}`).join(', ') },
                { name: 'Priority', cell: (x) => (x.risen_to && x.risen_to !== x.priority ? `${x.priority}, risen to ${x.risen_to}` : x.priority) },
                { name: 'Since', cell: (x) => <Time at={x.since} /> },
                { name: 'Until', cell: (x) => <Time at={x.expires_at} /> },
                {
                  name: 'Actions',
                  cell: (x) => (
                    <button
                      type="button"
                      class="quiet"
                      aria-label={`Release ${x.allocation}`}
                      onClick={() =>
                        open((close) => (
                          <Act title={`Release ${x.allocation}`} label="Release" danger typed={x.allocation} close={close} done={allocations.again} command={command('allocation', 'release', x.allocation)} run={async () => {
                            await call('DELETE', `/v1/allocations/${encodeURIComponent(x.allocation)}`);
                            return 'It is released, and what waits may get it.';
                          }}>
                            <p>{x.holder} learns of it with its next renewal. Until then it may still use what it was granted.</p>
                          </Act>
                        ))
                      }
                    >
                      Release
                    </button>
                  ),
                },
              ]}
            />
          )}
        </View>
        <Command text="ringlog allocation ls" />
      </Panel>
    </>
  );
}

interface ViewInfo {
  name: string;
  description?: string;
  generation: number;
  at: number;
  of: number;
  lag: number;
  rows: number;
  skipped: number;
  beyond_keys: number;
  emitted: number;
  waiting: number;
  incomplete?: string;
  failed?: string;
  declaration?: unknown;
}

const viewTone = (v: ViewInfo): [Tone, string] => (v.failed ? ['bad', 'failed'] : v.incomplete ? ['warn', 'incomplete'] : v.lag ? ['idle', `lags by ${count(v.lag)}`] : ['ok', 'folded']);

function Views({ name }: { name: string }) {
  const views = useLoad<{ views: ViewInfo[] }>('/v1/views', 3000);
  if (name) return <OneView name={name} />;
  return (
    <>
      <View of={views} empty={(v) => v.views.length === 0 && <Panel><Empty hint="ringlog view define view.json">No views are defined. One folds the log into rows:</Empty></Panel>}>
        {(v) => (
          <Panel title={plural(v.views.length, 'view')}>
            <Table<ViewInfo>
              label="Views"
              rows={v.views}
              id={(x) => x.name}
              columns={[
                { name: 'View', cell: (x) => <a href={href('work', 'views/' + x.name)}>{x.name}</a> },
                { name: 'State', cell: (x) => { const [tone, word] = viewTone(x); return <Badge tone={tone}>{word}</Badge>; } },
                { name: 'Rows', right: true, cell: (x) => count(x.rows) },
                { name: 'Folded to', right: true, cell: (x) => `${count(x.at)} of ${count(x.of)}` },
                { name: 'Skipped', right: true, cell: (x) => count(x.skipped) },
                { name: 'Waiting', right: true, cell: (x) => count(x.waiting ?? 0) },
                { name: 'About', cell: (x) => x.description },
              ]}
            />
          </Panel>
        )}
      </View>
      <Command text="ringlog view ls" />
    </>
  );
}

interface ViewRow {
  key: string;
  offset: number;
  at: string;
  fields: Record<string, unknown>;
}

// OneView shows the rows of a view as they change.
function OneView({ name }: { name: string }) {
  const info = useLoad<ViewInfo>(`/v1/views/${encodeURIComponent(name)}`, 5000);
  const [rows, setRows] = useState<ViewRow[]>();
  const [error, setError] = useState<ErrorDetail>();
  useEffect(() => {
    const stop = new AbortController();
    const by = new Map<string, ViewRow>();
    let planned = 0;
    const show = () => {
      planned = 0;
      setRows([...by.values()]);
    };
    const run = async () => {
      while (!stop.signal.aborted) {
        try {
          await lines(`/v1/views/${encodeURIComponent(name)}/watch`, (l) => {
            setError(undefined);
            if (l.row) by.set(l.row.key, l.row);
            planned ||= requestAnimationFrame(show);
          }, stop.signal);
        } catch (e) {
          if (stop.signal.aborted) return;
          const detail = asDetail(e);
          setError(detail);
          if (detail.code === 'not_found') return;
        }
        await new Promise((r) => setTimeout(r, 1000));
      }
    };
    const empty = setTimeout(() => setRows((r) => r ?? []), 1000);
    void run();
    return () => {
      stop.abort();
      clearTimeout(empty);
      cancelAnimationFrame(planned);
    };
  }, [name]);
  const text = (route.value.query.get('key') ?? '').toLowerCase();
  const fields = [...new Set((rows ?? []).slice(0, 200).flatMap((r) => Object.keys(r.fields)))].slice(0, 8);
  const shown = (rows ?? []).filter((r) => !text || r.key.toLowerCase().includes(text));
  return (
    <>
      <h2>
        {name} <small><a href={href('work', 'views')}>all views</a></small>
      </h2>
      <View of={info}>
        {(v) => (
          <Panel>
            {v.failed && <Failed error={{ code: 'failed', message: v.failed, remedy: 'define it otherwise' }} />}
            <Facts
              of={[
                ['about', v.description],
                ['folded to', `${count(v.at)} of ${count(v.of)}`],
                ['rows', count(v.rows)],
                ['skipped', count(v.skipped)],
                ['incomplete', v.incomplete],
                ['events of rules that wait', v.waiting],
              ]}
            />
            {!!v.declaration && (
              <details>
                <summary>Declaration</summary>
                <div class="payload">
                  <Tree value={v.declaration} />
                </div>
              </details>
            )}
          </Panel>
        )}
      </View>
      {error && <Failed error={error} />}
      <Panel title={`${plural(shown.length, 'row')}, as ${noun(shown.length, 'it changes', 'they change')}`} extra={<Search name="key" label="Key" />}>
        {!rows ? (
          <Loading />
        ) : shown.length === 0 ? (
          <Empty>No rows.</Empty>
        ) : (
          <Rows<ViewRow>
            label={`Rows of ${name}`}
            rows={shown}
            id={(r) => r.key}
            columns={[
              { name: 'Key', width: 'minmax(9rem,1fr)', by: (r) => r.key, cell: (r) => <strong>{r.key}</strong> },
              ...fields.map((f) => ({
                name: f,
                right: rows.some((r) => typeof r.fields[f] === 'number'),
                by: (r: ViewRow) => r.fields[f] as number | string,
                cell: (r: ViewRow) => (r.fields[f] === undefined ? '–' : typeof r.fields[f] === 'number' ? Number((r.fields[f] as number).toPrecision(6)) : typeof r.fields[f] === 'string' ? (r.fields[f] as string) : JSON.stringify(r.fields[f])),
              })),
              { name: 'Offset', right: true, width: '5.5rem', by: (r) => r.offset, cell: (r) => <a href={href('event', String(r.offset))}>{r.offset}</a> },
              { name: 'Changed', width: '8.5rem', by: (r) => r.at, cell: (r) => <Time at={r.at} /> },
            ]}
          />
        )}
      </Panel>
      <Command text={command('view', 'watch', name)} />
    </>
  );
}

interface Transfer {
  transfer: string;
  kind: string;
  name?: string;
  host: string;
  from?: string;
  state: string;
  started?: { at: string };
  requested?: { at: string };
  ended?: { offset: number; at: string };
  due?: string;
  overdue?: boolean;
  bytes?: number;
  error?: string;
  last_offset: number;
}

function Transfers() {
  const q = route.value.query;
  const host = q.get('host') ?? '';
  const state = q.get('state') ?? '';
  const transfers = useLoad<{ transfers: Transfer[]; next?: string; incomplete?: string }>(path('/v1/transfers', { host, state: state === 'overdue' ? '' : state, overdue: state === 'overdue' ? 'true' : '', limit: 1000 }), 4000);
  const tone = (t: Transfer): Tone => (t.overdue || t.state === 'failed' ? 'warn' : t.state === 'completed' ? 'ok' : 'idle');
  return (
    <>
      <form class="filters" onSubmit={(e) => e.preventDefault()} role="search" aria-label="Filter transfers">
        <Search name="host" label="Host" list={[]} />
        <Choice name="state" label="State" values={[['', 'all'], ['requested', 'requested'], ['running', 'running'], ['completed', 'completed'], ['failed', 'failed'], ['superseded', 'superseded'], ['overdue', 'overdue']]} />
      </form>
      <View of={transfers} empty={(t) => t.transfers.length === 0 && <Panel><Empty hint="ringlog transfers">No transfers: none was requested or completed by an event.</Empty></Panel>}>
        {(t) => (
          <Panel title={`${many(t.transfers.length, t.next)} ${noun(t.transfers.length, 'transfer')}`} extra={t.incomplete && <Badge tone="warn">{t.incomplete}</Badge>}>
            <Rows<Transfer>
              label="Transfers"
              rows={t.transfers.toReversed()}
              id={(x) => x.transfer}
              columns={[
                { name: 'State', width: '8.5rem', by: (x) => x.state, cell: (x) => <Badge tone={tone(x)}>{x.overdue ? 'overdue' : x.state}</Badge> },
                { name: 'Kind', width: '4.5rem', cell: (x) => x.kind },
                { name: 'What', width: 'minmax(9rem,1.2fr)', by: (x) => x.name ?? '', cell: (x) => x.name },
                { name: 'To', width: 'minmax(6rem,.8fr)', by: (x) => x.host, cell: (x) => (x.host ? <Link to="work" part="transfers" query={{ host: x.host }}>{x.host}</Link> : '–') },
                { name: 'From', width: 'minmax(5rem,.7fr)', cell: (x) => x.from },
                { name: 'Size', right: true, width: '6rem', by: (x) => x.bytes ?? 0, cell: (x) => bytes(x.bytes) },
                { name: 'Ended', width: '9.5rem', by: (x) => x.ended?.at ?? '', cell: (x) => <Time at={x.ended?.at} /> },
                { name: 'Event', right: true, width: '5rem', cell: (x) => <a href={href('event', String(x.last_offset))}>{x.last_offset}</a> },
                { name: 'Error', width: 'minmax(0,1fr)', cell: (x) => x.error },
              ]}
            />
          </Panel>
        )}
      </View>
      <Command text={command('transfers', ['--host', host], ['--state', state === 'overdue' ? '' : state], state === 'overdue' ? '--overdue' : '')} />
    </>
  );
}

interface Due {
  id: string;
  at: string;
  state: string;
  type: string;
  key?: string;
  offset?: number;
  duplicate?: boolean;
}

function Scheduled() {
  const due = useLoad<{ scheduled: Due[]; next?: string }>('/v1/scheduled?limit=1000', 3000);
  const { act, open } = useAct();
  return (
    <>
      {act}
      <View of={due} empty={(d) => d.scheduled.length === 0 && <Panel><Empty hint="ringlog publish DATA_SYNC_STARTED --at 2099-01-01T02:00:00Z">Nothing is scheduled.</Empty></Panel>}>
        {(d) => (
          <Panel title={`${many(d.scheduled.length, d.next)} ${noun(d.scheduled.length, 'event')}`}>
            <Table<Due>
              label="Scheduled events"
              rows={d.scheduled}
              id={(x) => x.id}
              columns={[
                { name: 'Id', cell: (x) => x.id },
                { name: 'At', cell: (x) => <Time at={x.at} /> },
                { name: 'State', cell: (x) => <Badge tone={x.state === 'published' ? 'ok' : 'idle'}>{x.state}</Badge> },
                { name: 'Type', cell: (x) => x.type },
                { name: 'Key', cell: (x) => x.key },
                { name: 'Published as', right: true, cell: (x) => (x.offset ? <a href={href('event', String(x.offset))}>{x.offset}{x.duplicate ? ' (a duplicate)' : ''}</a> : '–') },
                {
                  name: 'Actions',
                  cell: (x) =>
                    x.state === 'waiting' && (
                      <button
                        type="button"
                        class={cx('quiet')}
                        aria-label={`Remove ${x.id}`}
                        onClick={() =>
                          open((close) => (
                            <Act title={`Remove ${x.id}`} label="Remove" danger close={close} done={due.again} command={command('scheduled', 'rm', x.id)} run={async () => {
                              await call('DELETE', `/v1/scheduled/${encodeURIComponent(x.id)}`);
                              return 'It is removed, and is not published.';
                            }} />
                          ))
                        }
                      >
                        Remove
                      </button>
                    ),
                },
              ]}
            />
          </Panel>
        )}
      </View>
      <Command text="ringlog scheduled ls" />
    </>
  );
}
