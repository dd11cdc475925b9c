import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { asDetail, lines, path, type ErrorDetail } from '../api';
import { command, count, plural, rateText } from '../format';
import { route, setQuery, skew, status } from '../state';
import type { Gap, StoredEvent } from '../types';
import { Choice, Empty, Failed, Panel, Rows, Screen, Search, Sign, Time, View, useLoad } from '../ui';
import { EventDetail } from './event';

// How many events are shown, and how many wait while one pauses. Beyond that the stream is closed and resumed later from
// where it was: what waits in the log is not lost.
const shownAtMost = 20_000;
const waitAtMost = 10_000;

type Row = StoredEvent | { offset: number; gap: Gap };
const isGap = (r: Row): r is { offset: number; gap: Gap } => 'gap' in r;

interface Tail {
  rows: Row[]; // the newest first
  waiting: number;
  held: boolean; // whether the stream is closed until one continues
  error?: ErrorDetail;
  live: boolean;
  scanned: number;
  rate: number;
  failure?: { offset: number; error: string }; // the first event that the condition could not be evaluated for
}

const begin: Tail = { rows: [], waiting: 0, held: false, live: false, scanned: 0, rate: 0 };

// How many ms there are between two changes of the list: nobody reads more, and the frames between are for scrolling.
const pace = 50;

// useTail follows the log. Lines are gathered, and shown a few times a second.
function useTail(query: string, paused: boolean): Tail {
  const [tail, setTail] = useState<Tail>(begin);
  const pausing = useRef(paused);
  pausing.current = paused;
  const kick = useRef<() => void>(() => {});

  useEffect(() => {
    const stop = new AbortController();
    let rows: Row[] = [];
    let waiting: Row[] = []; // the oldest first, as they came
    let resume = 0;
    let scanned = 0;
    let live = false;
    let held = false;
    let error: ErrorDetail | undefined;
    let failure: Tail['failure'];
    let framed = 0;
    let connection = new AbortController();
    let seen: [number, number][] = []; // times and counts, of which the rate is made
    let wake = () => {};
    setTail(begin);

    const show = () => {
      framed = 0;
      shown = performance.now();
      if (!pausing.current && waiting.length) {
        rows = waiting.reverse().concat(rows);
        if (rows.length > shownAtMost) rows.length = shownAtMost;
        waiting = [];
      }
      const now = performance.now();
      seen = seen.filter(([at]) => now - at < 3000);
      const rate = seen.reduce((sum, [, n]) => sum + n, 0) / 3;
      setTail({ rows, waiting: waiting.length, held, error, live, scanned, rate, failure });
      if (seen.length) later(); // so that the rate falls once nothing comes
    };
    let timer = 0;
    const later = () => {
      clearTimeout(timer);
      timer = setTimeout(plan, 500) as unknown as number;
    };
    let shown = 0;
    let planned = 0;
    const plan = () => {
      if (framed || planned) return;
      const wait = shown + pace - performance.now();
      if (wait > 0) planned = setTimeout(() => ((planned = 0), plan()), wait) as unknown as number;
      else framed = requestAnimationFrame(show);
    };
    const take = (row: Row) => {
      waiting.push(row);
      // What was in the log before does not count for the rate.
      const last = seen.at(-1);
      const now = performance.now();
      const fresh = !isGap(row) && Date.parse(row.appended_at) > Date.now() + skew.value - 5000;
      if (fresh && last && now - last[0] < 100) last[1]++;
      else if (fresh) seen.push([now, 1]);
      if (pausing.current && waiting.length >= waitAtMost) {
        held = true;
        connection.abort();
      }
      plan();
    };
    const line = (l: any) => {
      live = true;
      error = undefined;
      if ('offset' in l) {
        resume = l.offset + 1;
        take(l as StoredEvent);
      } else if (l.gap) {
        resume = l.gap.to + 1;
        take({ offset: l.gap.to, gap: l.gap });
      } else if (l.where) {
        failure ??= l.where; // each stream reports its first
        plan();
      } else if ('scanned' in l) {
        resume = l.scanned + 1;
      } else if (l.end) {
        if (l.end.scanned) resume = l.end.scanned + 1;
        if (l.end.error) error = l.end.error;
      }
      scanned = Math.max(scanned, resume - 1);
    };
    kick.current = () => {
      if (held && !pausing.current) {
        held = false;
        wake();
      }
      plan();
    };

    const run = async () => {
      for (let wait = 500; !stop.signal.aborted; ) {
        connection = new AbortController();
        const abort = () => connection.abort();
        stop.signal.addEventListener('abort', abort, { once: true });
        const q = new URLSearchParams(query);
        q.set('follow', 'true');
        if (resume) q.set('from', String(resume));
        try {
          // The first answer says that the stream is there, even if no event comes.
          await lines(`/v1/events?${q}`, (l) => {
            wait = 500;
            line(l);
          }, connection.signal);
        } catch (e) {
          if (stop.signal.aborted) return;
          if (!held) {
            error = asDetail(e);
            // What is wrong with the request does not get better by itself.
            if (error.code === 'invalid_argument' || error.code === 'unauthenticated' || error.code === 'past_tail') {
              live = false;
              plan();
              return;
            }
          }
        }
        stop.signal.removeEventListener('abort', abort);
        live = false;
        plan();
        if (held) await new Promise<void>((r) => ((wake = r), stop.signal.addEventListener('abort', () => r(), { once: true })));
        else await new Promise((r) => setTimeout(r, wait));
        wait = Math.min(5000, wait * 2);
      }
    };
    // A stream that has begun and is silent is alive, too.
    const first = setTimeout(() => {
      if (!error) live = true;
      plan();
    }, 400);
    void run();
    return () => {
      stop.abort();
      cancelAnimationFrame(framed);
      for (const t of [timer, first, planned]) clearTimeout(t);
    };
  }, [query]);

  useEffect(() => kick.current(), [paused]);
  return tail;
}

const filters = ['type', 'category', 'source', 'key', 'correlation_id'] as const;

export function Live() {
  const q = route.value.query;
  const [paused, setPaused] = useState(false);
  const query = useMemo(() => {
    const out: Record<string, string | string[]> = { from: q.get('from') || '-200', where: q.get('where') ?? '' };
    // Several values of one kind are separated by commas.
    for (const f of filters) out[f] = (q.get(f) ?? '').split(',').map((v) => v.trim()).filter(Boolean);
    return path('', out).slice(1);
  }, [filters.map((f) => q.get(f)).join('\n'), q.get('where'), q.get('from')]);
  const tail = useTail(query, paused);
  const contains = (q.get('contains') ?? '').toLowerCase();
  const rows = useMemo(
    () => (contains ? tail.rows.filter((r) => isGap(r) || JSON.stringify(r).toLowerCase().includes(contains)) : tail.rows),
    [tail.rows, contains],
  );
  const at = Number(q.get('at') ?? 0);
  const chosen = rows.find((r) => r.offset === at && !isGap(r)) as StoredEvent | undefined;
  const types = useLoad<{ types: { name: string }[]; categories: string[] }>('/v1/catalogue');
  const limited = filters.some((f) => q.get(f)) || q.get('where') || contains;

  return (
    <Screen
      title="Live"
      about={
        <span class="live-state" role="status">
          <Sign tone={paused ? 'idle' : tail.live ? 'ok' : 'warn'} /> {paused ? 'paused' : tail.live ? 'following' : tail.error ? 'not connected' : 'connecting'} · {rateText(tail.rate)} events/s ·{' '}
          {count(rows.length)} shown{rows.length >= shownAtMost ? ', the newest' : ''}
        </span>
      }
      actions={
        <button type="button" class="primary" onClick={() => setPaused(!paused)} aria-pressed={paused}>
          {paused ? `Continue (${count(tail.waiting)}${tail.held ? '+' : ''} new)` : 'Pause'}
        </button>
      }
      command={command('tail', ['--type', q.get('type') ?? ''], ['--category', q.get('category') ?? ''], ['--source', q.get('source') ?? ''], ['--key', q.get('key') ?? ''], ['--correlation-id', q.get('correlation_id') ?? ''], ['--where', q.get('where') ?? ''], ['--from', q.get('from') || '-200'])}
    >
      <form class="filters" onSubmit={(e) => e.preventDefault()} role="search" aria-label="Filter events">
        <Search name="type" label="Type or pattern" placeholder="training.*" list={types.data?.types.map((t) => t.name) ?? []} />
        <Search name="source" label="Source" list={[]} />
        <Search name="key" label="Key" list={[]} />
        <Search name="correlation_id" label="Run" list={[]} />
        <Search name="where" label="Condition (CEL)" placeholder="payload.loss > 3" list={[]} wait={1000} />
        <Search name="contains" label="Filter" />
        <Choice
          name="from"
          label="From"
          values={[
            ['', 'the last 200'],
            ['end', 'now'],
            ['5m', '5 minutes ago'],
            ['1h', 'an hour ago'],
            ['24h', 'a day ago'],
            ['start', 'the beginning'],
            ...(q.get('from') && !['end', '5m', '1h', '24h', 'start'].includes(q.get('from')!) ? ([[q.get('from')!, q.get('from')!]] as [string, string][]) : []),
          ]}
        />
        {limited && (
          <button type="button" onClick={() => setQuery({ type: '', category: '', source: '', key: '', correlation_id: '', where: '', contains: '' })}>
            Clear
          </button>
        )}
      </form>
      {tail.error && <Failed error={tail.error} />}
      {tail.failure && (
        <p class="note" role="status">
          The condition could not be evaluated for event {tail.failure.offset} ({tail.failure.error}). Such events are left out.
        </p>
      )}
      {tail.held && (
        <p class="note" role="status">
          {plural(waitAtMost, 'event')} wait here, and the rest in the log: nothing is lost, it is read once you continue.
        </p>
      )}
      <div class={at ? 'split' : ''}>
        <Panel>
          {rows.length === 0 && tail.error ? (
            <Empty>Nothing is followed: see above.</Empty>
          ) : rows.length === 0 ? (
            <Empty hint={limited ? undefined : command('publish', 'TRAINING_COMPLETED', ['--payload', '{"config_key": "hex8_2p"}'])}>
              {tail.live ? (limited ? `No event matches so far, of those up to offset ${count(tail.scanned || status.value?.last_offset)}.` : 'No events yet. Publish one:') : 'Connecting …'}
            </Empty>
          ) : (
            <Rows<Row>
              label="Events, the newest first"
              rows={rows}
              id={(r) => (isGap(r) ? `gap ${r.offset}` : r.offset)}
              selected={at}
              open={(r) => !isGap(r) && setQuery({ at: at === r.offset ? '' : r.offset })}
              keepPlace
              tall
              columns={[
                { name: 'Offset', right: true, width: '5.5rem', cell: (r) => r.offset },
                { name: 'Time', width: '7.5rem', cell: (r) => (isGap(r) ? '' : <Time at={r.appended_at} ms />) },
                { name: 'Type', width: 'minmax(14rem,1.3fr)', cell: (r) => (isGap(r) ? <strong>▲ {r.gap.from} to {r.gap.to} were trimmed ({r.gap.reason})</strong> : <span class="type">{r.type}</span>) },
                { name: 'Source', width: 'minmax(5rem,.8fr)', cell: (r) => (isGap(r) ? '' : r.source) },
                { name: 'Key', width: 'minmax(5rem,.7fr)', cell: (r) => (isGap(r) ? '' : r.key) },
                { name: 'Payload', width: 'minmax(0,2fr)', cell: (r) => (isGap(r) ? '' : <code class="preview">{preview(r)}</code>) },
              ]}
            />
          )}
        </Panel>
        {at > 0 && (
          <Panel
            title={`Event ${at}`}
            extra={
              <button type="button" class="quiet" data-closes onClick={() => setQuery({ at: '' })}>
                Close
              </button>
            }
          >
            {chosen ? <EventDetail e={chosen} /> : <Fetched offset={at} />}
          </Panel>
        )}
      </div>
    </Screen>
  );
}

const previews = new WeakMap<StoredEvent, string>();

// preview is made once an event, however often its row is drawn.
function preview(e: StoredEvent): string {
  let text = previews.get(e);
  if (text === undefined) previews.set(e, (text = JSON.stringify(e.payload).slice(0, 160)));
  return text;
}

// Fetched shows an event that is not among those shown, as when a URL was shared.
function Fetched({ offset }: { offset: number }) {
  const load = useLoad<StoredEvent>(`/v1/events/${offset}`);
  return <View of={load}>{(e) => <EventDetail e={e} />}</View>;
}

