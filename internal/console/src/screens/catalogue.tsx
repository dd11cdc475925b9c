import { useEffect, useState } from 'preact/hooks';
import { path, text as read } from '../api';
import { command, count, duration, plural, since } from '../format';
import { href, route } from '../state';
import type { StoredEvent } from '../types';
import { Badge, Choice, Empty, Facts, Panel, Rows, Screen, Search, Table, Time, useLoad, View } from '../ui';

interface Definition {
  name: string;
  value: string;
  status: string;
  alias_of?: string;
  category: string;
  payload?: { name: string; type: string; source?: string; required?: boolean; doc?: string }[] | null;
  emitters?: string[];
  subscribers?: string[];
  cross_process?: boolean;
  impact?: string;
  documents?: string[];
}

interface CatalogueAnswer {
  types: Definition[];
  aliases: Record<string, string>;
  categories: string[];
}

// Recent is what the newest events say of each type: how many, and when the last one came.
function useRecent() {
  const [recent, set] = useState<{ by: Map<string, { n: number; last: string }>; seconds: number; events: number }>();
  useEffect(() => {
    const abort = new AbortController();
    const ask = async () => {
      try {
        const by = new Map<string, { n: number; last: string }>();
        let first = '';
        let events = 0;
        for (const line of (await read('/v1/events?from=-5000', abort.signal)).split('\n')) {
          if (!line.startsWith('{"offset"')) continue;
          const e = JSON.parse(line) as StoredEvent;
          first ||= e.appended_at;
          events++;
          const t = by.get(e.type) ?? { n: 0, last: '' };
          by.set(e.type, { n: t.n + 1, last: e.appended_at });
        }
        set({ by, seconds: first ? since(first) : 0, events });
      } catch {
        // The catalogue is shown without it.
      }
    };
    void ask();
    return () => abort.abort();
  }, []);
  return recent;
}

export function Catalogue() {
  return route.value.part ? <OneType name={route.value.part} /> : <AllTypes />;
}

function AllTypes() {
  const q = route.value.query;
  const all = useLoad<CatalogueAnswer>('/v1/catalogue');
  const recent = useRecent();
  return (
    <Screen title="Catalogue" about={recent ? `The event types, counted over the newest ${plural(recent.events, 'event')}${recent.seconds ? `, which are of the last ${duration(recent.seconds)}` : ''}.` : 'The event types.'} command={command('catalogue', 'ls', ['--category', q.get('category') ?? ''])}>
      <View of={all} empty={(c) => c.types.length === 0 && <Empty>The catalogue is empty.</Empty>}>
        {(c) => {
          const text = (q.get('name') ?? '').toLowerCase();
          const category = q.get('category') ?? '';
          const rows = c.types.filter(
            (t) =>
              (!category || t.category === category) &&
              (!q.get('seen') || recent?.by.has(t.name)) &&
              (!text || t.name.toLowerCase().includes(text) || t.value.includes(text) || t.payload?.some((f) => f.name.includes(text)) || Object.entries(c.aliases).some(([a, of]) => of === t.name && a.toLowerCase().includes(text))),
          );
          return (
            <>
              <form class="filters" onSubmit={(e) => e.preventDefault()} role="search" aria-label="Filter types">
                <Search name="name" label="Name, alias or field" />
                <Choice name="category" label="Category" values={[['', 'all'], ...c.categories.map((v): [string, string] => [v, v])]} />
                <Choice
                  name="seen"
                  label="Show"
                  values={[
                    ['', 'all types'],
                    ['true', 'those in the newest events'],
                  ]}
                />
              </form>
              <Panel title={`${count(rows.length)} of ${plural(c.types.length, 'type')}`}>
                <Rows<Definition>
                  label="Types"
                  version={recent}
                  rows={rows}
                  id={(t) => t.name}
                  open={(t) => (location.hash = href('catalogue', t.name))}
                  tall
                  columns={[
                    { name: 'Type', width: 'minmax(15rem,1.2fr)', by: (t) => t.name, cell: (t) => <a href={href('catalogue', t.name)}>{t.name}</a> },
                    { name: 'Category', width: '7rem', by: (t) => t.category, cell: (t) => t.category },
                    { name: 'Status', width: '6.5rem', by: (t) => t.status, cell: (t) => t.status },
                    { name: 'Recent', right: true, width: '5rem', by: (t) => recent?.by.get(t.name)?.n ?? 0, cell: (t) => count(recent?.by.get(t.name)?.n ?? 0) },
                    { name: 'Last seen', width: '9.5rem', by: (t) => recent?.by.get(t.name)?.last ?? '', cell: (t) => <Time at={recent?.by.get(t.name)?.last} /> },
                    { name: 'Fields', width: 'minmax(8rem,1.4fr)', cell: (t) => t.payload?.map((f) => f.name).join(', ') },
                  ]}
                />
              </Panel>
            </>
          );
        }}
      </View>
    </Screen>
  );
}

function OneType({ name }: { name: string }) {
  const type = useLoad<Definition>(`/v1/catalogue/${encodeURIComponent(name)}`);
  const all = useLoad<CatalogueAnswer>('/v1/catalogue');
  const [examples, setExamples] = useState<StoredEvent[]>();
  useEffect(() => {
    const abort = new AbortController();
    const ask = async () => {
      // The newest ones are among the newest of the log, or else the first that it keeps are shown.
      for (const from of ['-20000', 'start']) {
        const lines = (await read(path('/v1/events', { type: name, from, limit: from === 'start' ? 5 : undefined }), abort.signal)).split('\n');
        const found = lines.filter((l) => l.startsWith('{"offset"')).map((l) => JSON.parse(l) as StoredEvent);
        if (found.length) return setExamples(found.slice(-5).reverse());
      }
      setExamples([]);
    };
    ask().catch(() => abort.signal.aborted || setExamples([]));
    return () => abort.abort();
  }, [name]);
  return (
    <Screen
      title={name}
      about={<a href={href('catalogue')}>Catalogue</a>}
      actions={
        <>
          <a class="button" href={href('live', '', { type: name, from: '-5000' })}>
            Live
          </a>
          <a class="button" href={href('wiring', name, { live: 'false' })}>
            Wiring
          </a>
        </>
      }
      command={command('catalogue', 'show', name)}
    >
      <View of={type}>
        {(t) => {
          const aliases = Object.entries(all.data?.aliases ?? {})
            .filter(([, of]) => of === t.name)
            .map(([a]) => a);
          return (
            <div class="columns">
              <Panel title="Definition">
                <Facts
                  of={[
                    ['value', <code>{t.value}</code>],
                    ['category', t.category],
                    ['status', t.status === 'canonical' ? t.status : <Badge tone="idle">{t.status}</Badge>],
                    ['alias of', t.alias_of && <a href={href('catalogue', t.alias_of)}>{t.alias_of}</a>],
                    ['aliases', aliases.join(', ')],
                    ['emitted by', t.emitters?.join(', ')],
                    ['listened to by', t.subscribers?.join(', ')],
                    ['across processes', t.cross_process === undefined ? undefined : t.cross_process ? 'yes' : 'no'],
                    ['if it is lost', t.impact],
                    ['documents', t.documents?.join(', ')],
                  ]}
                />
                <h3>Fields</h3>
                {t.payload?.length ? (
                  <Table
                    label="Fields"
                    rows={t.payload}
                    id={(f) => f.name}
                    columns={[
                      { name: 'Field', cell: (f) => <code>{f.name}</code> },
                      { name: 'Type', cell: (f) => f.type },
                      { name: 'Known from', cell: (f) => f.source },
                    ]}
                  />
                ) : (
                  <p class="note">No fields are documented.</p>
                )}
              </Panel>
              <Panel title="Examples from the log">
                {!examples ? (
                  <p class="note">Looking …</p>
                ) : examples.length === 0 ? (
                  <Empty hint={command('publish', t.name, ['--payload', '{}'])}>The log has none.</Empty>
                ) : (
                  examples.map((e) => (
                    <div key={e.offset} class="example">
                      <p>
                        <a href={href('event', String(e.offset))}>{e.offset}</a> <Time at={e.appended_at} /> {e.source}
                      </p>
                      <pre class="payload">{JSON.stringify(e.payload, null, 1)}</pre>
                    </div>
                  ))
                )}
              </Panel>
            </div>
          );
        }}
      </View>
    </Screen>
  );
}

