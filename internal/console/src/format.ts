// Figures and times as people read them.
import { clock, skew } from './state';
import type { Cursor, Filter, Quorum, Status } from './types';

const digits = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });

// count groups digits with thin spaces: 1 234 567.
export const count = (n: number | undefined) => (n === undefined ? '–' : digits.format(n).replaceAll(',', '\u202f'));

// noun returns the form of a word that goes with a count, plural the count as well: 1 client, 2 clients.
export const noun = (n: number | undefined, one: string, many = one + 's') => (n === 1 ? one : many);
export const plural = (n: number | undefined, one: string, many?: string) => `${count(n)} ${noun(n, one, many)}`;

// rateText has as many digits as say something.
export function rateText(n: number | undefined): string {
  if (n === undefined || Number.isNaN(n)) return '–';
  return n >= 100 || Number.isInteger(n) ? count(n) : n >= 10 ? n.toFixed(1) : n.toFixed(2);
}

export function bytes(n: number | undefined): string {
  if (n === undefined) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return `${i === 0 || n >= 100 ? n.toFixed(0) : n.toFixed(1).replace('.0', '')} ${units[i]}`;
}

export function duration(seconds: number | undefined): string {
  if (seconds === undefined || Number.isNaN(seconds)) return '–';
  const sign = seconds < 0 ? '−' : '';
  const s = Math.abs(seconds);
  if (s < 1) return `${sign}${(s * 1000).toFixed(0)} ms`;
  if (s < 60) return `${sign}${s.toFixed(s < 10 ? 1 : 0)} s`;
  if (s < 3600) return `${sign}${Math.floor(s / 60)} min ${Math.floor(s % 60)} s`;
  if (s < 86400) return `${sign}${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${sign}${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}

const pad = (n: number, width = 2) => String(n).padStart(width, '0');

// stamp returns a time in UTC or in the zone of the browser.
export function stamp(at: Date, zone: string, withDate: boolean, ms = false): string {
  const local = zone !== 'UTC';
  const part = local
    ? [at.getFullYear(), at.getMonth() + 1, at.getDate(), at.getHours(), at.getMinutes(), at.getSeconds()]
    : [at.getUTCFullYear(), at.getUTCMonth() + 1, at.getUTCDate(), at.getUTCHours(), at.getUTCMinutes(), at.getUTCSeconds()];
  const time = `${pad(part[3]!)}:${pad(part[4]!)}:${pad(part[5]!)}${ms ? '.' + pad(at.getMilliseconds(), 3) : ''}`;
  return withDate ? `${part[0]}-${pad(part[1]!)}-${pad(part[2]!)} ${time}` : time;
}

// both returns a time in UTC and in the zone of the browser.
export function both(text: string): string {
  const at = new Date(text);
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (at.getTimezoneOffset() === 0) return `${stamp(at, 'UTC', true, true)} UTC`;
  return `${stamp(at, 'UTC', true, true)} UTC · ${stamp(at, 'local', true, true)} ${zone}`;
}

// when returns a time in the zone that the reader has chosen, with the date if it is not of today.
export function when(text: string, ms = false): string {
  const at = new Date(text);
  const old = Date.now() - at.getTime() > 20 * 3600_000;
  return stamp(at, clock.value, old, ms);
}

// since returns the seconds since a time, by the clock of the node, which the browser's need not agree with.
export const since = (text: string) => (Date.now() + skew.value - new Date(text).getTime()) / 1000;

// list writes the first few of some names.
export const list = (names: string[]) => names.slice(0, 5).join(', ') + (names.length > 5 ? ` and ${plural(names.length - 5, 'other')}` : '');

// quote makes one word of a text for a shell.
export const quote = (word: string) => (/^[\w./:@=,+-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);

// command joins words of a command line; what is undefined or '' is left out, and flags are pairs.
export function command(...words: (string | number | undefined | [string, string | number | undefined])[]): string {
  const out = ['ringlog'];
  for (const w of words) {
    if (Array.isArray(w)) {
      if (w[1] !== undefined && w[1] !== '') out.push(w[0], quote(String(w[1])));
    } else if (w !== undefined && w !== '') {
      out.push(quote(String(w)));
    }
  }
  return out.join(' ');
}

// passed is up to where a cursor has nothing open, and held how many events of the log are kept for it.
export const passed = (c: Cursor) => Math.max(c.committed, c.scanned ?? 0);
export const held = (c: Cursor, s: Status) => s.last_offset - Math.min(s.last_offset, Math.max(passed(c), s.first_offset - 1));

// quorumText says how many voters answer, and how many have to.
export const quorumText = (q: Quorum) => `${q.healthy} of ${plural(q.voters, 'voter')} ${noun(q.healthy, 'answers', 'answer')}, ${q.needed} ${noun(q.needed, 'is', 'are')} needed`;

// lag is how many events a cursor is still to get; lagText says so where the node gives an upper bound.
export const lag = (c: Cursor) => c.lag_events ?? c.lag_at_least ?? 0;
export const lagText = (c: Cursor) => (c.lag_at_least === undefined ? '' : '≤ ') + count(lag(c));

// filterText describes a filter in one line.
export function filterText(f: Filter | undefined): string {
  const parts = [f?.types, f?.categories, f?.sources, f?.keys, f?.correlation_ids]
    .map((list, i) => (list?.length ? `${['type', 'category', 'source', 'key', 'run'][i]} ${list.join(', ')}` : ''))
    .filter(Boolean);
  return parts.join(' · ') || 'everything';
}
