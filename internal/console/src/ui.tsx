// The parts that screens are made of.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import { Component, type ComponentChildren, type CSSProperties, type TargetedKeyboardEvent } from 'preact';
import { asDetail, call, get, noLeader, type ErrorDetail } from './api';
import { both, when } from './format';
import { href, route, setQuery } from './state';

export const cx = (...names: (string | false | undefined)[]) => names.filter(Boolean).join(' ');

// A sign and a word show each state. Colour only repeats them.
export type Tone = 'ok' | 'warn' | 'bad' | 'idle';
const signs: Record<Tone, string> = { ok: '●', warn: '▲', bad: '■', idle: '○' };

export const Sign = ({ tone }: { tone: Tone }) => (
  <span class={'sign ' + tone} aria-hidden="true">
    {signs[tone]}
  </span>
);

export const Badge = ({ tone, children }: { tone: Tone; children: ComponentChildren }) => (
  <span class={'badge ' + tone}>
    <Sign tone={tone} />
    {children}
  </span>
);

export const Time = ({ at, ms }: { at: string | undefined; ms?: boolean }) =>
  at ? (
    <time dateTime={at} title={both(at)}>
      {when(at, ms)}
    </time>
  ) : (
    <span>–</span>
  );

export const Link = ({ to, part, query, children, title }: { to: string; part?: string; query?: Record<string, string | number | undefined>; children: ComponentChildren; title?: string }) => (
  <a href={href(to, part, query)} title={title}>
    {children}
  </a>
);

export function Copy({ text, label = 'Copy' }: { text: string; label?: string }) {
  const [done, setDone] = useState('');
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setDone('Copied');
    } catch {
      setDone('The browser does not allow it');
    }
    setTimeout(() => setDone(''), 1500);
  };
  return (
    <button type="button" class="quiet" onClick={copy} aria-live="polite">
      {done || label}
    </button>
  );
}

// Command shows what a screen or an act is on the command line.
export const Command = ({ text }: { text: string }) => (
  <div class="command">
    <span class="label">as a command</span>
    <code>{text}</code>
    <Copy text={text} />
  </div>
);

export function Screen({ title, about, actions, children, command }: { title: string; about?: ComponentChildren; actions?: ComponentChildren; children: ComponentChildren; command?: string }) {
  useEffect(() => {
    document.title = `${title} · ringlog`;
  }, [title]);
  return (
    <main id="main" tabIndex={-1}>
      <header class="head">
        <div>
          <h1>{title}</h1>
          {about && <p class="about">{about}</p>}
        </div>
        <div class="actions">{actions}</div>
      </header>
      {children}
      {command && <Command text={command} />}
    </main>
  );
}

export const Panel = ({ title, extra, children, wide }: { title?: string; extra?: ComponentChildren; children: ComponentChildren; wide?: boolean }) => (
  <section class={cx('panel', wide && 'wide')}>
    {(title || extra) && (
      <div class="panel-head">
        {title && <h2>{title}</h2>}
        {extra}
      </div>
    )}
    {children}
  </section>
);

export const Empty = ({ children, hint }: { children: ComponentChildren; hint?: string }) => (
  <div class="empty" data-state="empty">
    <p>{children}</p>
    {hint && <code>{hint}</code>}
  </div>
);

export const Loading = () => (
  <div class="loading" role="status" data-state="loading">
    <span class="bar" />
    <span class="bar short" />
    Loading …
  </div>
);

// The screens that show what the routes of a remedy answer with.
const ways: Record<string, [screen: string, title: string]> = {
  cursors: ['cursors', 'Cursors'],
  groups: ['cursors', 'Cursors'],
  dlq: ['letters', 'Dead letters'],
  events: ['live', 'Live'],
  catalogue: ['catalogue', 'Catalogue'],
  members: ['members', 'Members'],
  settings: ['settings', 'Settings'],
  views: ['work', 'Roles and work'],
  roles: ['work', 'Roles and work'],
};

export function Failed({ error, again }: { error: ErrorDetail; again?: () => void }) {
  const without = noLeader(error);
  const way = ways[/\/v1\/(\w+)/.exec(error.remedy ?? '')?.[1] ?? ''];
  // The message of a parser points at a column: its lines are kept.
  const [first, ...lines] = error.message.split('\n');
  return (
    <div class="failed" role="alert" data-state={without ? 'no-leader' : 'error'}>
      <p>
        <Sign tone={without ? 'warn' : 'bad'} /> <strong>{without ? 'No leader takes this request' : first}</strong>{' '}
        <code>{error.reason ? `${error.code}/${error.reason}` : error.code}</code>
      </p>
      {without && <p>{error.message}</p>}
      {lines.length > 0 && <pre>{lines.join('\n')}</pre>}
      {error.remedy && (
        <p>
          Remedy: {way && way[0] + '/' !== route.value.screen + '/' + route.value.part && <>see <Link to={way[0]}>{way[1]}</Link>, or </>}
          {error.remedy}
        </p>
      )}
      {without && (
        <p>
          <Link to="story">See what each voter sees</Link>; the page asks again by itself.
        </p>
      )}
      {again && (
        <button type="button" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

export interface Loaded<T> {
  data: T | undefined;
  error: ErrorDetail | undefined;
  again: () => void;
}

// useLoad asks for a path, again every `every` ms while somebody looks. What was there stays while an error lasts.
export function useLoad<T>(p: string | undefined, every = 0): Loaded<T> {
  const [state, set] = useState<{ p?: string; data?: T; error?: ErrorDetail }>({});
  const [turn, next] = useState(0);
  useEffect(() => {
    if (!p) return;
    const abort = new AbortController();
    let timer = 0;
    const ask = async () => {
      if (!document.hidden) {
        try {
          const data = await get<T>(p, abort.signal);
          set({ p, data });
        } catch (e) {
          if (abort.signal.aborted) return;
          const error = asDetail(e);
          set((s) => ({ p, data: s.p === p ? s.data : undefined, error }));
          // A leader is found within seconds; whoever asked for something once gets it then.
          if (!every && noLeader(error)) timer = setTimeout(ask, 2000) as unknown as number;
        }
      }
      if (every && !abort.signal.aborted) timer = setTimeout(ask, every) as unknown as number;
    };
    void ask();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [p, every, turn]);
  const mine = state.p === p;
  return { data: mine ? state.data : undefined, error: mine ? state.error : undefined, again: () => next((n) => n + 1) };
}

// View shows what was loaded, or why it was not.
export function View<T>({ of, empty, children }: { of: Loaded<T>; empty?: (data: T) => ComponentChildren; children: (data: T) => ComponentChildren }) {
  const nothing = of.data !== undefined && empty?.(of.data);
  return (
    <>
      {of.error && <Failed error={of.error} again={of.again} />}
      {of.data === undefined ? !of.error && <Loading /> : nothing || children(of.data)}
    </>
  );
}

// Search is the field that / leads to. What is typed is part of the URL, if a node is asked for it once one pauses.
export function Search({ name, label, placeholder, list, wait = 400 }: { name: string; label: string; placeholder?: string; list?: string[]; wait?: number }) {
  const { screen, part, query } = route.value;
  const value = query.get(name) ?? '';
  const [typed, type] = useState(value);
  const timer = useRef(0);
  useEffect(() => type((now) => (now.trim() === value ? now : value)), [value]);
  useEffect(() => () => clearTimeout(timer.current), []);
  const commit = (text: string) => {
    clearTimeout(timer.current);
    // A field reports a change as it goes with its screen, too: the URL is that of the next one then.
    const now = route.peek();
    if (now.screen === screen && now.part === part && text !== (now.query.get(name) ?? '')) setQuery({ [name]: text });
  };
  return (
    <label class="field">
      <span>{label}</span>
      <input
        type="search"
        name={name}
        value={typed}
        placeholder={placeholder}
        list={list && name + '-list'}
        spellcheck={false}
        autocomplete="off"
        onInput={(e) => {
          const text = e.currentTarget.value;
          type(text);
          clearTimeout(timer.current);
          if (list) timer.current = setTimeout(() => commit(text.trim()), wait) as unknown as number;
          else commit(text);
        }}
        onChange={(e) => commit(e.currentTarget.value.trim())}
      />
      {list && (
        <datalist id={name + '-list'}>
          {list.map((v) => (
            <option key={v} value={v} />
          ))}
        </datalist>
      )}
    </label>
  );
}

export function Choice({ name, label, values }: { name: string; label: string; values: [string, string][] }) {
  return (
    <label class="field">
      <span>{label}</span>
      <select name={name} value={route.value.query.get(name) ?? ''} onChange={(e) => setQuery({ [name]: e.currentTarget.value })}>
        {values.map(([v, text]) => (
          <option key={v} value={v}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

export interface Column<T> {
  name: string;
  cell: (row: T) => ComponentChildren;
  by?: (row: T) => number | string; // what the rows are sorted by
  right?: boolean;
  width?: string; // of a grid's track
}

const rowHeight = 30;

// Cells are drawn again only if their row is another, or what else they show, which is the version.
class Cells<T> extends Component<{ row: T; columns: Column<T>[]; version: unknown }> {
  override shouldComponentUpdate(next: { row: T; columns: Column<T>[]; version: unknown }) {
    const now = this.props;
    return next.row !== now.row || next.version !== now.version || next.columns.length !== now.columns.length;
  }
  override render() {
    const { row, columns } = this.props;
    return columns.map((c) => (
      <span role="gridcell" key={c.name} class={c.right ? 'right' : undefined}>
        {c.cell(row)}
      </span>
    ));
  }
}

// Rows is a table of which only the rows in sight exist, so that it is as quick with ten thousand. j and k move in it, and
// Enter opens. Rows that arrive at the top do not move what one reads.
export function Rows<T>({ label, rows, columns, id, open, selected, tall, keepPlace, version }: { label: string; rows: T[]; columns: Column<T>[]; id: (row: T) => string | number; open?: (row: T) => void; selected?: string | number; tall?: boolean; keepPlace?: boolean; version?: unknown }) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 600 });
  const [sort, setSort] = useState<{ at: number; down: boolean } | undefined>();
  const sorted = useMemo(() => {
    const by = sort && columns[sort.at]?.by;
    if (!by) return rows;
    const order = sort.down ? -1 : 1;
    return rows.toSorted((a, b) => {
      const x = by(a);
      const y = by(b);
      return x < y ? -order : x > y ? order : 0;
    });
  }, [rows, sort]);

  // The row that was at the top stays there while others arrive above it.
  const first = useRef<string | number | undefined>(undefined);
  useEffect(() => {
    const el = box.current;
    if (!el) return;
    if (keepPlace && el.scrollTop > 0 && first.current !== undefined && !sort) {
      const at = sorted.findIndex((r) => id(r) === first.current);
      if (at > 0) el.scrollTop += at * rowHeight;
    }
    first.current = sorted[0] && id(sorted[0]);
  }, [sorted]);

  useEffect(() => {
    const el = box.current!;
    const measure = () => setView((v) => (v.top === el.scrollTop && v.height === el.clientHeight ? v : { top: el.scrollTop, height: el.clientHeight }));
    const watch = new ResizeObserver(measure);
    watch.observe(el);
    el.addEventListener('scroll', measure, { passive: true });
    return () => {
      watch.disconnect();
      el.removeEventListener('scroll', measure);
    };
  }, []);

  const from = Math.max(0, Math.floor(view.top / rowHeight) - 4);
  const to = Math.min(sorted.length, Math.ceil((view.top + view.height) / rowHeight) + 4);
  const grid = columns.map((c) => c.width ?? 'minmax(0,1fr)').join(' ');
  // What the columns need at least, in rem, with the gaps: a narrower window scrolls.
  const least = columns.reduce((sum, c) => sum + Number(/[\d.]+(?=rem)/.exec(c.width ?? '')?.[0] ?? 4) + 1.1, 1);

  // A key may come before the row that the last one moved to is drawn: it continues from there.
  const going = useRef<number | undefined>(undefined);
  const settle = () => {
    const row = box.current!.querySelector<HTMLElement>(`[data-at="${going.current}"]`);
    if (!row) return;
    going.current = undefined;
    row.focus({ preventScroll: true });
  };
  useLayoutEffect(settle);
  const move = (to: number) => {
    const el = box.current!;
    const at = Math.max(0, Math.min(sorted.length - 1, to));
    const y = at * rowHeight;
    if (y < el.scrollTop) el.scrollTop = y;
    if (y + rowHeight * 2 > el.scrollTop + el.clientHeight) el.scrollTop = y + rowHeight * 2 - el.clientHeight;
    going.current = at;
    settle();
  };
  const keys = (e: TargetedKeyboardEvent<HTMLDivElement>) => {
    const at = Number((e.target as HTMLElement).closest<HTMLElement>('[data-at]')?.dataset['at'] ?? -1);
    const steps: Record<string, number> = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -Infinity, End: Infinity };
    if (e.key in steps && !e.ctrlKey && !e.metaKey && !e.altKey) {
      e.preventDefault();
      e.stopPropagation();
      move((going.current ?? at) + steps[e.key]!);
    } else if (e.key === 'Enter' && at >= 0 && open && e.target instanceof HTMLElement && e.target.dataset['at']) {
      e.preventDefault();
      open(sorted[at]!);
    }
  };

  return (
    <div class={cx('rows', tall && 'tall')} role="grid" aria-label={label} aria-rowcount={sorted.length + 1} ref={box} onKeyDown={keys} tabIndex={0} style={{ '--grid': grid, '--least': `${Math.max(46, least)}rem`, '--need': `${(sorted.length + 1) * rowHeight + 16}px` } as CSSProperties}>
      <div class="row header" role="row" aria-rowindex={1}>
        {columns.map((c, i) => (
          <span role="columnheader" key={c.name} class={cx(c.right && 'right')} aria-sort={sort?.at === i ? (sort.down ? 'descending' : 'ascending') : c.by ? 'none' : undefined}>
            {c.by ? (
              <button type="button" class="sort" onClick={() => setSort(sort?.at === i && !sort.down ? undefined : { at: i, down: sort?.at !== i })}>
                {c.name}
                <span aria-hidden="true">{sort?.at === i ? (sort.down ? ' ↓' : ' ↑') : ''}</span>
              </button>
            ) : (
              c.name
            )}
          </span>
        ))}
      </div>
      <div class="space" role="presentation" style={{ height: `${sorted.length * rowHeight}px` }}>
        <div class="shown" role="presentation" style={{ transform: `translateY(${from * rowHeight}px)` }}>
          {sorted.slice(from, to).map((row, i) => {
            const at = from + i;
            const key = id(row);
            return (
              <div class={cx('row', open && 'opens', selected === key && 'selected')} role="row" key={key} data-at={at} tabIndex={-1} aria-rowindex={at + 2} aria-selected={open ? selected === key : undefined} onClick={(e) => open && !(e.target as HTMLElement).closest('a,button,input') && open(row)}>
                <Cells row={row} columns={columns} version={version} />
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}

// Table is for few rows, which need no scrolling of their own.
export function Table<T>({ label, rows, columns, id }: { label: string; rows: T[]; columns: Column<T>[]; id: (row: T) => string | number }) {
  return (
    <div class="table" tabIndex={0} role="region" aria-label={label}>
      <table aria-label={label}>
        <thead>
          <tr>
            {columns.map((c) => (
              <th key={c.name} scope="col" class={cx(c.right && 'right')}>
                {c.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={id(row)} tabIndex={-1}>
              {columns.map((c) => (
                <td key={c.name} class={cx(c.right && 'right')}>
                  {c.cell(row)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export const Facts = ({ of }: { of: [string, ComponentChildren][] }) => (
  <dl class="facts">
    {of
      .filter(([, v]) => v !== undefined && v !== '' && v !== null && v !== false)
      .map(([k, v]) => (
        <div key={k}>
          <dt>{k}</dt>
          <dd>{v}</dd>
        </div>
      ))}
  </dl>
);

export const Stat = ({ name, value, unit, tone, to, note }: { name: string; value: ComponentChildren; unit?: string; tone?: Tone; to?: string; note?: ComponentChildren }) => (
  <div class={cx('stat', tone)}>
    <span class="name">{to ? <a href={to}>{name}</a> : name}</span>
    <span class="value">
      {tone && tone !== 'ok' && tone !== 'idle' && <Sign tone={tone} />}
      {value}
      {unit && <small> {unit}</small>}
    </span>
    {note && <span class="note">{note}</span>}
  </div>
);

// Act is a dialog for something that changes the cluster: what it does, a preview where there is one, the same as a
// command, and a confirmation. What cannot be undone asks for a word to be typed. With pressed, Enter in a field does
// nothing, and the button has to be pressed.
export function Act({ title, children, command, run, done, close, label, danger, typed, pressed, ready = true }: { title: string; children?: ComponentChildren; command: string; run: () => Promise<ComponentChildren>; done?: () => void; close: () => void; label: string; danger?: boolean; typed?: string; pressed?: boolean; ready?: boolean }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [word, setWord] = useState('');
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ErrorDetail>();
  const [result, setResult] = useState<ComponentChildren>();
  useEffect(() => {
    dialog.current!.showModal();
  }, []);
  useEffect(() => {
    if (result !== undefined) dialog.current?.querySelector<HTMLElement>('.buttons button')?.focus();
  }, [result]);
  const go = async () => {
    setBusy(true);
    setError(undefined);
    try {
      setResult(await run());
      done?.();
    } catch (e) {
      setError(asDetail(e));
    } finally {
      setBusy(false);
    }
  };
  return (
    <dialog ref={dialog} onClose={close} aria-label={title} class={cx(danger && 'danger')}>
      <form
        method="dialog"
        onKeyDown={(e) => {
          if (pressed && e.key === 'Enter' && e.target instanceof HTMLInputElement) e.preventDefault();
        }}
        onSubmit={(e) => {
          e.preventDefault();
          if (!busy && ready && result === undefined && (!typed || word === typed)) void go();
        }}
      >
        <h2>{title}</h2>
        {result === undefined && children}
        {error && <Failed error={error} />}
        {result !== undefined && (
          <div class="result" role="status">
            <Sign tone="ok" /> {result}
          </div>
        )}
        {typed && result === undefined && (
          <label class="field">
            <span>
              Type <code>{typed}</code> to confirm
            </span>
            <input name="confirm" value={word} onInput={(e) => setWord(e.currentTarget.value)} autocomplete="off" spellcheck={false} />
          </label>
        )}
        <Command text={command} />
        <div class="buttons">
          <button type="button" onClick={() => dialog.current!.close()}>
            {result === undefined ? 'Cancel' : 'Close'}
          </button>
          {result === undefined && (
            <button type="submit" class={danger ? 'danger' : 'primary'} disabled={busy || !ready || (!!typed && word !== typed)}>
              {busy ? 'Working …' : label}
            </button>
          )}
        </div>
      </form>
    </dialog>
  );
}

// useAct keeps which act is open.
export function useAct() {
  const [act, setAct] = useState<ComponentChildren>();
  return { act, open: (make: (close: () => void) => ComponentChildren) => setAct(make(() => setAct(undefined))) };
}

export const post = <T,>(p: string, body: unknown) => call<T>('POST', p, body);

// Tree shows JSON, folded below the second level where it is large.
export function Tree({ value, name, depth = 0 }: { value: unknown; name?: string; depth?: number }) {
  const label = name !== undefined && <span class="key">{name}: </span>;
  if (value === null || typeof value !== 'object') {
    const kind = value === null ? 'null' : typeof value;
    return (
      <div class="leaf">
        {label}
        <span class={'json ' + kind}>{typeof value === 'string' ? JSON.stringify(value) : String(value)}</span>
      </div>
    );
  }
  const list = Array.isArray(value);
  const entries = Object.entries(value as Record<string, unknown>);
  if (entries.length === 0) {
    return (
      <div class="leaf">
        {label}
        <span class="json">{list ? '[]' : '{}'}</span>
      </div>
    );
  }
  return (
    <details class="branch" open={depth < 2 && entries.length <= 50}>
      <summary>
        {label}
        <span class="json">{list ? `[${entries.length}]` : `{${entries.length}}`}</span>
      </summary>
      <div class="children">
        {entries.slice(0, 500).map(([k, v]) => (
          <Tree key={k} name={k} value={v} depth={depth + 1} />
        ))}
        {entries.length > 500 && <div class="leaf">… {entries.length - 500} more: copy the event as JSON</div>}
      </div>
    </details>
  );
}
