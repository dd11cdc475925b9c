// Calls of the HTTP interface. The page is at PREFIX/ui/, so the interface is one folder above it, also behind a proxy
// with a path of its own.
import { signal } from '@preact/signals';

const base = new URL('..', location.href.split('#')[0]);

// Whether this browser has signed in: no page can read the cookie by which it calls.
export const signedIn = signal(localStorage.getItem('ringlog-signed-in') !== null);
// Whether the cluster has refused a call for want of a good token.
export const refused = signal(false);
// The cluster of the first answer: a node of another one refuses what follows.
let cluster = '';

// signIn changes a token into the cookie. The token itself is kept nowhere.
export async function signIn(token: string) {
  await send('POST', '/v1/session', undefined, undefined, token);
  localStorage.setItem('ringlog-signed-in', '');
  signedIn.value = true;
  refused.value = false;
}

export async function signOut() {
  await send('DELETE', '/v1/session');
  localStorage.removeItem('ringlog-signed-in');
  signedIn.value = false;
}

// What this page itself has asked its node for, and been sent: the plots leave it out.
export const own = { requests: 0, events: 0, streams: 0 };

export interface ErrorDetail {
  code: string;
  message: string;
  remedy?: string;
  field?: string;
  reason?: string;
  offset?: number;
  leader_http?: string;
}

export class ApiError extends Error {
  readonly detail: ErrorDetail;
  constructor(detail: ErrorDetail) {
    super(detail.message);
    this.detail = detail;
  }
}

// noLeader reports whether a call failed because there is no leader that takes it.
export const noLeader = (e: ErrorDetail | undefined) => e?.code === 'no_leader' || e?.code === 'no_quorum';

// asDetail makes an error of whatever was thrown.
export function asDetail(e: unknown): ErrorDetail {
  if (e instanceof ApiError) return e.detail;
  return {
    code: 'unreachable',
    message: `this node does not answer (${e instanceof Error ? e.message : String(e)})`,
    remedy: 'open the console of another node; on the host of this one: systemctl status ringlog',
  };
}

export type Query = Record<string, string | number | boolean | string[] | undefined>;

// path builds a path with a query; what is empty is left out.
export function path(p: string, query: Query = {}): string {
  const q = new URLSearchParams();
  for (const [k, v] of Object.entries(query)) {
    for (const one of Array.isArray(v) ? v : [v]) if (one !== undefined && one !== '' && one !== false) q.append(k, String(one));
  }
  const text = q.toString();
  return text ? `${p}?${text}` : p;
}

async function send(method: string, p: string, body?: unknown, abort?: AbortSignal, token?: string): Promise<Response> {
  own.requests++;
  const headers: Record<string, string> = {};
  if (token) headers['Authorization'] = `Bearer ${token}`;
  if (cluster) headers['Ringlog-Cluster'] = cluster;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  const answer = await fetch(new URL(p.replace(/^\//, ''), base), {
    method,
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal: abort,
    cache: 'no-store',
  });
  if (answer.ok) {
    cluster ||= answer.headers.get('Ringlog-Cluster') ?? '';
    return answer;
  }
  let detail: ErrorDetail = { code: 'internal', message: `${method} ${p}: HTTP ${answer.status}` };
  try {
    detail = ((await answer.json()) as { error: ErrorDetail }).error ?? detail;
  } catch {
    // Something between here and the node has answered; its status is all there is.
  }
  if (detail.code === 'unauthenticated') refused.value = true;
  throw new ApiError(detail);
}

export async function call<T>(method: string, p: string, body?: unknown, abort?: AbortSignal): Promise<T> {
  return (await (await send(method, p, body, abort)).json()) as T;
}

export const get = <T>(p: string, abort?: AbortSignal) => call<T>('GET', p, undefined, abort);

export async function text(p: string, abort?: AbortSignal): Promise<string> {
  const all = await (await send('GET', p, undefined, abort)).text();
  if (p.startsWith('/v1/events')) own.events += all.match(/^\{"offset"/gm)?.length ?? 0;
  return all;
}

// lines reads a stream of NDJSON until it ends. A stream that is silent for longer than the node allows itself was cut.
export async function lines(p: string, each: (line: any) => void, abort: AbortSignal): Promise<void> {
  const cut = new AbortController();
  abort.addEventListener('abort', () => cut.abort(), { once: true });
  const answer = await send('GET', p, undefined, cut.signal);
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  own.streams++;
  try {
    for (;;) {
      const silent = setTimeout(() => cut.abort(), 15_000);
      const { value, done } = await reader.read().finally(() => clearTimeout(silent));
      if (done) return;
      const parts = (rest + value).split('\n');
      rest = parts.pop()!;
      for (const part of parts) {
        if (!part) continue;
        if (part.startsWith('{"offset"')) own.events++;
        each(JSON.parse(part));
      }
    }
  } finally {
    own.streams--;
  }
}

// metrics returns the series of this node by name and labels, without the buckets of histograms.
export async function metrics(): Promise<Map<string, number>> {
  const out = new Map<string, number>();
  for (const line of (await text('/metrics')).split('\n')) {
    if (!line.startsWith('ringlog_') && !line.startsWith('process_') && !line.startsWith('raft_')) continue;
    const at = line.lastIndexOf(' ');
    if (!line.includes('_bucket{')) out.set(line.slice(0, at), Number(line.slice(at + 1)));
  }
  return out;
}
