import { useEffect, useMemo, useState } from 'preact/hooks';
import { get, path } from '../api';
import { both, bytes, command, count, duration, plural, since } from '../format';
import { href, route, setQuery } from '../state';
import type { Cursor, Letter, LettersResult, LetterStats } from '../types';
import { Act, Badge, Choice, Command, Empty, Facts, Link, Panel, post, Rows, Screen, Search, Sign, Stat, Table, Time, Tree, useAct, useLoad, View } from '../ui';
import { EventDetail } from './event';

export function Letters() {
  return route.value.part ? <OneLetter id={route.value.part} /> : <AllLetters />;
}

interface Selection {
  ids?: number[];
  all?: boolean;
  type?: string;
  cursor?: string;
  error?: string;
}

// words says which letters a choice is, as flags of the command line.
const words = (c: Selection) => [...(c.ids ?? []).map(String), c.all ? '--all' : undefined, ['--type', c.type] as [string, string | undefined], ['--cursor', c.cursor] as [string, string | undefined], ['--error', c.error] as [string, string | undefined]];

// shape is an error as the node groups them: its first line, with # for each number. A long one ends in how much it lacks.
const shape = (error = '') => error.split('\n')[0]!.replace(/[0-9]+/g, '#').trim() || '(no error was given)';
const cut = / … \(\d+ more bytes\)$/;

// inGroup reports whether a letter is one of a group, and partOf is the longest text that all of the group contain.
const inGroup = (l: Letter, group: string) => (cut.test(group) ? shape(l.error).startsWith(group.replace(cut, '')) : shape(l.error) === group);
const partOf = (group: string) => (group === shape() ? '' : group.replace(cut, '').split('#').reduce((a, b) => (b.length > a.length ? b : a), ''));

// How many letters that were chosen one by one are sent in one call.
const atOnce = 500;

// Redrive tries first what it would do, then does it in parts and shows how far it is.
function Redrive({ choice, cursors, close, done, purge }: { choice: Selection; cursors: string[]; close: () => void; done: () => void; purge?: boolean }) {
  const verb = purge ? 'purge' : 'redrive';
  const [dry, setDry] = useState<LettersResult>();
  const [failure, setFailure] = useState<unknown>();
  const [progress, setProgress] = useState<number>();
  const [older, setOlder] = useState('');
  const [idle, setIdle] = useState<string[]>([]);
  // An age is a condition of its own, beside which all is refused.
  const body = older ? { ...choice, all: undefined, older_than: older } : choice;
  useEffect(() => {
    const ask = async (name: string) => ((await get<Cursor>(`/v1/groups/${encodeURIComponent(name)}`)).group?.members === 0 ? name : '');
    // A cursor that is no group has no members that one could ask for.
    if (!purge) void Promise.all(cursors.slice(0, 10).map((c) => ask(c).catch(() => ''))).then((names) => setIdle(names.filter(Boolean)));
  }, []);
  useEffect(() => {
    setDry(undefined);
    setFailure(undefined);
    let gone = false;
    const timer = setTimeout(() => {
      post<LettersResult>(`/v1/dlq/${verb}`, { ...body, dry_run: true }).then(
        (r) => gone || setDry(r),
        (e) => gone || setFailure(e),
      );
    }, 200);
    return () => {
      gone = true;
      clearTimeout(timer);
    };
  }, [older]);
  const todo = dry ? dry.matched - dry.skipped : 0;
  return (
    <Act
      title={purge ? 'Purge dead letters' : 'Redrive dead letters'}
      label={purge ? `Purge ${count(dry?.matched)}` : `Redrive ${count(todo)}`}
      danger={purge}
      typed={purge ? 'purge' : undefined}
      ready={!!dry && (purge ? dry.matched > 0 : todo > 0)}
      close={close}
      done={done}
      command={command('dlq', verb, ...words(body), ['--older-than', older])}
      run={async () => {
        let done = 0;
        let skipped = 0;
        let after: number | undefined;
        for (let ids = choice.ids; ; ) {
          const r: LettersResult = await post(`/v1/dlq/${verb}`, { ...body, ...(ids ? { ids: ids.slice(0, atOnce) } : after ? { after } : {}), ...(purge || ids ? {} : { max_events: atOnce }) });
          done += r.done;
          skipped += r.skipped;
          setProgress(done);
          if (ids) {
            ids = ids.slice(atOnce);
            if (!ids.length) break;
            continue;
          }
          if (!(r.more || r.left > 0) || !r.last || r.last === after) break;
          after = r.last;
        }
        return purge ? `${count(done)} purged.` : `${count(done)} redriven${skipped ? `, ${count(skipped)} ${skipped === 1 ? 'was' : 'were'} redriven before` : ''}.`;
      }}
    >
      {purge ? <p>The letters are removed for good; the events stay in the log as long as it keeps them.</p> : <p>A copy of each event is appended for the cursor that failed on it, and for nobody else.</p>}
      {idle.length > 0 && (
        <p data-test="idle">
          <Sign tone="warn" /> {idle.join(', ')} {idle.length === 1 ? 'has' : 'have'} no member now: nobody takes the copies until one joins.
        </p>
      )}
      {purge && !choice.ids && (
        <label class="field">
          <span>Only those that have been dead for, such as 30d</span>
          <input name="older" value={older} onInput={(e) => setOlder(e.currentTarget.value)} />
        </label>
      )}
      <div class="result" role="status" data-test="dry-run">
        {failure ? (
          <>The dry run failed: {failure instanceof Error ? failure.message : String(failure)}</>
        ) : !dry ? (
          'Dry run …'
        ) : (
          <>
            Dry run: {plural(dry.matched, 'letter matches', 'letters match')}
            {dry.skipped ? `, ${count(dry.skipped)} of them ${dry.skipped === 1 ? 'is' : 'are'} being redriven already` : ''}
            {dry.no_cursor?.length ? `, ${count(dry.no_cursor.length)} ${dry.no_cursor.length === 1 ? 'has' : 'have'} no cursor any more` : ''}.
          </>
        )}
      </div>
      {progress !== undefined && (
        <label>
          <span class="sr">Progress</span>
          <progress value={progress} max={Math.max(todo, progress, 1)} />
        </label>
      )}
    </Act>
  );
}

function AllLetters() {
  const q = route.value.query;
  const group = q.get('group') ?? '';
  const filter = { type: q.get('type') ?? '', cursor: q.get('cursor') ?? '', error: q.get('error') || partOf(group), state: q.get('state') ?? '' };
  const summary = useLoad<LetterStats & { dead: number; by_cursor: Record<string, number>; by_type: Record<string, number>; oldest_seconds?: number }>('/v1/dlq', 5000);
  const errors = useLoad<{ errors: { error: string; count: number; cursors: Record<string, number>; types: Record<string, number>; last_failed?: string; letters?: number[] }[] }>(path('/v1/dlq/errors', filter), 5000);
  const loaded = useLoad<{ letters: Letter[]; next?: number }>(path('/v1/dlq', { limit: 10000, ...filter }), 5000);
  const matching = useMemo(() => loaded.data && { ...loaded.data, letters: loaded.data.letters.filter((l) => !group || inGroup(l, group)) }, [loaded.data, group]);
  const letters = { ...loaded, data: matching };
  const { act, open } = useAct();
  const again = () => {
    summary.again();
    errors.again();
    loaded.again();
  };
  const narrowed = !!(filter.type || filter.cursor || filter.error || filter.state || group);
  const shown = letters.data?.letters ?? [];
  const cursors = [...new Set(shown.map((l) => l.cursor ?? ''))].filter(Boolean);
  // The node knows neither groups nor states as conditions of an act: the letters are named one by one.
  const choose = (of: Letter[]): Selection => (group || filter.state ? { ids: of.map((l) => l.id) } : narrowed ? { type: filter.type || undefined, cursor: filter.cursor || undefined, error: filter.error || undefined } : { all: true });
  const dead = shown.filter((l) => l.state === 'dead');
  const s = summary.data;
  return (
    <Screen
      title="Dead letters"
      about="Events that handlers failed on, until they are redriven or purged."
      command={command('dlq', 'ls', ['--type', filter.type], ['--cursor', filter.cursor], ['--error', filter.error])}
      actions={
        (s?.dead ?? 0) > 0 && (
          <>
            <button type="button" class="primary" disabled={dead.length === 0} onClick={() => open((close) => <Redrive choice={choose(dead)} cursors={cursors} close={close} done={again} />)}>
              Redrive {narrowed ? 'those shown' : 'all'}
            </button>
            <button type="button" disabled={shown.length === 0} onClick={() => open((close) => <Redrive choice={choose(shown)} cursors={cursors} close={close} done={again} purge />)}>
              Purge {narrowed ? 'those shown' : 'all'}
            </button>
          </>
        )
      }
    >
      {act}
      <View of={summary} empty={(s) => s.count === 0 && <Panel><Empty hint="ringlog dlq">No dead letters. {s.ever ? `There ${s.ever === 1 ? 'was' : 'were'} ${count(s.ever)} in total.` : 'An event that a handler keeps failing on becomes one.'}</Empty></Panel>}>
        {(s) => (
          <>
            <div class="stats">
              <Stat name="Dead" value={count(s.dead)} tone={s.dead ? 'warn' : undefined} note={s.oldest ? `the oldest for ${duration(s.oldest_seconds ?? since(s.oldest))}` : ''} />
              <Stat name="Being redriven" value={count(s.redriven)} />
              <Stat name="Size" value={bytes(s.bytes)} note={`of ${bytes(s.max_bytes)}`} />
              <Stat name="Total" value={count(s.ever)} />
            </div>
            <form class="filters" role="search" aria-label="Filter dead letters" onSubmit={(e) => e.preventDefault()}>
              <Search name="error" label="Error contains" list={[]} />
              <Search name="type" label="Type or pattern" list={Object.keys(s.by_type)} />
              <Search name="cursor" label="Cursor" list={Object.keys(s.by_cursor)} />
              <Choice
                name="state"
                label="State"
                values={[
                  ['', 'any'],
                  ['dead', 'dead'],
                  ['redriven', 'being redriven'],
                ]}
              />
              {group && (
                <span class="chip" data-test="group">
                  error <code>{group}</code>
                </span>
              )}
              {narrowed && (
                <button type="button" onClick={() => setQuery({ type: '', cursor: '', error: '', state: '', group: '' })}>
                  Clear
                </button>
              )}
            </form>
            <div class="columns">
              <Panel title="By error">
                <View of={errors} empty={(e) => e.errors.length === 0 && <Empty>No matches.</Empty>}>
                  {(e) => (
                    <Table
                      label="Errors"
                      rows={e.errors.slice(0, 50)}
                      id={(e) => e.error}
                      columns={[
                        { name: 'Count', right: true, cell: (e) => count(e.count) },
                        { name: 'Error', cell: (e) => (e.error === '(other errors)' ? e.error : <a href={href('letters', '', { group: e.error })}><code>{e.error}</code></a>) },
                        { name: 'Types', cell: (e) => Object.keys(e.types).join(', ') },
                        { name: 'Last', cell: (e) => <Time at={e.last_failed} /> },
                      ]}
                    />
                  )}
                </View>
                <Command text="ringlog dlq errors" />
              </Panel>
              <Panel title="By type">
                <Table
                  label="Types"
                  rows={Object.entries(s.by_type).toSorted((a, b) => b[1] - a[1]).slice(0, 50)}
                  id={([type]) => type}
                  columns={[
                    { name: 'Count', right: true, cell: ([, n]) => count(n) },
                    { name: 'Type', cell: ([type]) => <a href={href('letters', '', { type })}>{type}</a> },
                  ]}
                />
              </Panel>
            </div>
            <Panel title="Letters">
              <View of={letters} empty={(l) => l.letters.length === 0 && <Empty>No matches.</Empty>}>
                {(l) => (
                  <>
                    <Rows<Letter>
                      label="Dead letters"
                      rows={l.letters}
                      id={(l) => l.id}
                      open={(l) => (location.hash = href('letters', String(l.id)))}
                      columns={[
                        { name: 'Letter', right: true, width: '3.5rem', by: (l) => l.id, cell: (l) => <a href={href('letters', String(l.id))}>{l.id}</a> },
                        { name: 'State', width: '8.7rem', cell: (l) => <LetterState l={l} /> },
                        { name: 'Event', right: true, width: '4.5rem', by: (l) => l.offset ?? 0, cell: (l) => (l.offset ? <a href={href('event', String(l.offset))}>{l.offset}</a> : '–') },
                        { name: 'Type', width: 'minmax(13rem,1.6fr)', by: (l) => l.type, cell: (l) => <span title={l.type}>{l.type}</span> },
                        { name: 'Cursor', width: 'minmax(5rem,.5fr)', by: (l) => l.cursor ?? '', cell: (l) => l.cursor },
                        { name: 'Attempts', right: true, width: '5rem', by: (l) => l.attempts, cell: (l) => l.attempts },
                        { name: 'Dead since', width: '9.5rem', by: (l) => l.dead_lettered_at, cell: (l) => <Time at={l.dead_lettered_at} /> },
                        { name: 'Error', width: 'minmax(8rem,1.9fr)', cell: (l) => <code title={l.error}>{l.error}</code> },
                      ]}
                    />
                    {l.next && <p class="note">They are among the first {count(10000)}; narrow them down to see others.</p>}
                  </>
                )}
              </View>
            </Panel>
          </>
        )}
      </View>
    </Screen>
  );
}

const LetterState = ({ l }: { l: Letter }) => (l.state === 'dead' ? <Badge tone="warn">dead</Badge> : <Badge tone="idle">being redriven</Badge>);

function OneLetter({ id }: { id: string }) {
  const letter = useLoad<Letter>(/^\d+$/.test(id) ? `/v1/dlq/${id}` : undefined, 5000);
  const { act, open } = useAct();
  const choice = { ids: [Number(id)] };
  const cursors = letter.data?.cursor ? [letter.data.cursor] : [];
  return (
    <Screen
      title={`Dead letter ${id}`}
      about={<Link to="letters">All dead letters</Link>}
      command={command('dlq', 'show', id)}
      actions={
        letter.data && (
          <>
            {letter.data.state === 'dead' && (
              <button type="button" class="primary" onClick={() => open((close) => <Redrive choice={choice} cursors={cursors} close={close} done={letter.again} />)}>
                Redrive
              </button>
            )}
            <button type="button" onClick={() => open((close) => <Redrive choice={choice} cursors={cursors} close={close} done={() => (location.hash = href('letters'))} purge />)}>
              Purge
            </button>
          </>
        )
      }
    >
      {act}
      <View of={letter}>
        {(l) => (
          <div class="columns">
            <Panel title="What happened">
              <p>
                <LetterState l={l} />
              </p>
              <Facts
                of={[
                  ['error', <code>{l.error || '(no text)'}</code>],
                  ['handler', l.handler],
                  ['cursor', l.cursor && <Link to="cursors" part={l.cursor}>{l.cursor}</Link>],
                  ['attempts', l.attempts],
                  ['first failed', l.first_failed && both(l.first_failed)],
                  ['last failed', l.last_failed && both(l.last_failed)],
                  ['dead since', both(l.dead_lettered_at)],
                  ['redriven', l.redrives ? plural(l.redrives, 'time') : 'never'],
                  ['its copy', l.copy && <Link to="event" part={String(l.copy)}>offset {l.copy}</Link>],
                  ['imported from', l.origin],
                ]}
              />
              <h3>Lineage</h3>
              <ol class="lineage">
                {[...new Set([...(l.lineage ?? []), ...(l.copy ? [l.copy] : [])])].map((n, i) => (
                  <li key={n}>
                    {i === 0 ? 'the event, ' : 'redriven as '}
                    <Link to="event" part={String(n)}>offset {n}</Link>
                  </li>
                ))}
              </ol>
            </Panel>
            <Panel title="The event">{l.event ? l.event.offset ? <EventDetail e={l.event} /> : <Tree value={l.event} /> : <Empty>It is not in the log any more.</Empty>}</Panel>
          </div>
        )}
      </View>
    </Screen>
  );
}

