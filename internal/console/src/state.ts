// What all screens share: the route, the status of the node, samples of its figures, and preferences.
import { computed, effect, signal } from '@preact/signals';
import { asDetail, get, metrics, own, signedIn, type ErrorDetail, type Query } from './api';
import type { Status } from './types';

// The route is the fragment of the URL, #/screen/part?name=value, so that a screen can be shared, and what one looks at
// does not appear in the logs of proxies.
export interface Route {
  screen: string;
  part: string;
  query: URLSearchParams;
}

function parse(): Route {
  const [where = '', query = ''] = location.hash.replace(/^#\/?/, '').split('?');
  const [screen = '', ...part] = where.split('/');
  return { screen: screen || 'overview', part: part.map(decodeURIComponent).join('/'), query: new URLSearchParams(query) };
}

export const route = signal<Route>(parse());
addEventListener('hashchange', () => (route.value = parse()));

// href returns the URL of a screen.
export function href(screen: string, part = '', query: Query = {}): string {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(query)) if (v !== undefined && v !== '' && v !== false) q.set(k, String(v));
  const text = q.toString();
  return `#/${screen}${part ? '/' + encodeURIComponent(part) : ''}${text ? '?' + text : ''}`;
}

// setQuery changes parameters of the present screen without a new entry in the history.
export function setQuery(change: Query) {
  const r = route.value;
  const query: Query = { ...Object.fromEntries(r.query), ...change };
  history.replaceState(null, '', href(r.screen, r.part, query));
  route.value = parse();
}

// A preference is kept by the browser.
function preference(name: string, fallback: string) {
  const s = signal(localStorage.getItem('ringlog-' + name) ?? fallback);
  effect(() => localStorage.setItem('ringlog-' + name, s.value));
  return s;
}

export const theme = preference('theme', 'system');
export const clock = preference('clock', 'UTC');
effect(() => {
  document.documentElement.style.colorScheme = theme.value === 'system' ? 'light dark' : theme.value;
});

// The status of the node, every two seconds while somebody looks.
export const status = signal<Status | undefined>(undefined);
export const statusError = signal<ErrorDetail | undefined>(undefined);

// skew is how many ms the clock of the node is ahead of the browser's.
export const skew = signal(0);

// hasLeader is false once the node has said that it knows none.
export const hasLeader = computed(() => !status.value || !!status.value.leader_id);

// Samples of what is plotted: names of series to values, by time in seconds. Half an hour of them is kept.
export interface Samples {
  at: number[];
  series: Record<string, number[]>;
}

const kept = 900;
export const samples = signal<Samples>({ at: [], series: {} });

let before: { at: number; s: Status; m: Map<string, number>; mine: typeof own } | undefined;

// rate returns how much a counter has grown in a second; one that began again at 0 has none.
const rate = (now: number, was: number, seconds: number) => (now >= was && seconds > 0 ? (now - was) / seconds : 0);

function sample(s: Status, m: Map<string, number>) {
  const at = Date.now() / 1000;
  const mine = { ...own };
  const row: Record<string, number> = {
    lag: m.get('ringlog_cursor_lag_events_max') ?? 0,
    lag_seconds: m.get('ringlog_cursor_lag_seconds_max') ?? 0,
    letters: s.dead_letters.count - s.dead_letters.redriven,
    log_bytes: s.log.log_bytes,
    disk_free: m.get('ringlog_disk_free_bytes') ?? 0,
    queue: s.queue.requests,
    streams: Math.max(0, (m.get('ringlog_streams') ?? 0) - mine.streams),
    memory: m.get('process_resident_memory_bytes') ?? 0,
    margin: s.quorum.margin,
  };
  if (before) {
    const dt = at - before.at;
    const growth = (name: string) => rate(m.get(name) ?? 0, before!.m.get(name) ?? 0, dt);
    row['publish'] = rate(s.last_offset, before.s.last_offset, dt);
    // What this page reads for itself is no load of the cluster's.
    row['read'] = Math.max(0, growth('ringlog_delivered_events_total') - rate(mine.events, before.mine.events, dt));
    row['duplicates'] = growth('ringlog_events_suppressed_total');
    row['requests'] = 0;
    let seconds = 0;
    let count = 0;
    for (const [name, value] of m) {
      if (name.startsWith('ringlog_http_requests_total{')) row['requests'] += rate(value, before.m.get(name) ?? 0, dt);
      const publish = name.includes('route="POST /v1/events"') || name.includes('LogService/Publish"');
      if (publish && name.startsWith('ringlog_http_request_seconds_sum')) seconds += value - (before.m.get(name) ?? 0);
      if (publish && name.startsWith('ringlog_http_request_seconds_count')) count += value - (before.m.get(name) ?? 0);
    }
    row['requests'] = Math.max(0, row['requests'] - rate(mine.requests, before.mine.requests, dt));
    row['publish_ms'] = count > 0 ? (seconds / count) * 1000 : NaN;
    const old = samples.value;
    const series: Record<string, number[]> = {};
    for (const [name, value] of Object.entries(row)) {
      // A series that begins later has no values before.
      const past = old.series[name] ?? new Array<number>(old.at.length).fill(NaN);
      series[name] = [...past, value].slice(-kept);
    }
    samples.value = { at: [...old.at, at].slice(-kept), series };
  }
  before = { at, s, m, mine };
}

// latest returns the last value of a series.
export const latest = (name: string): number | undefined => samples.value.series[name]?.at(-1);

let asking = false;
export async function refresh() {
  if (asking) return;
  asking = true;
  try {
    const s = await get<Status>('/status', AbortSignal.timeout(8000));
    skew.value = new Date(s.clock).getTime() - Date.now();
    status.value = s;
    statusError.value = undefined;
    sample(s, await metrics());
  } catch (e) {
    statusError.value = asDetail(e);
  } finally {
    asking = false;
  }
}

export function startStatus() {
  let seen = signedIn.value;
  effect(() => {
    if (signedIn.value !== seen) {
      seen = signedIn.value;
      void refresh();
    }
  });
  const tick = async () => {
    if (!document.hidden) await refresh();
    setTimeout(tick, 2000);
  };
  document.addEventListener('visibilitychange', () => void (document.hidden || refresh()));
  void tick();
}
