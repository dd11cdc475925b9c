import { render } from 'preact';
import { useEffect, useRef, useState } from 'preact/hooks';
import { signal } from '@preact/signals';
import { asDetail, refused, signedIn, signIn, signOut } from './api';
import { findings } from './findings';
import { count } from './format';
import { clock, hasLeader, href, route, startStatus, status, statusError, theme } from './state';
import { cx, Failed, Panel, Screen, Sign } from './ui';
import { screens } from './screens';
import './style.css';

const help = signal(false);

// Strip says on every screen how the cluster is.
function Strip() {
  const s = status.value;
  const wrong = s ? findings(s) : [];
  const tone = statusError.value ? 'bad' : !s ? 'idle' : (wrong[0]?.tone ?? 'ok');
  const word = { ok: 'healthy', warn: 'needs attention', bad: 'critical', idle: 'asking' }[tone];
  return (
    <header class="strip" data-test="strip">
      <a class="brand" href={href('overview')}>
        ringlog
      </a>
      <a class="health" href={href('overview')}>
        <Sign tone={tone} /> {statusError.value ? (refused.value ? 'token needed' : 'this node does not answer') : word}
      </a>
      {s && (
        <span class="facts-line">
          <span>{s.leader_id ? `${s.leader_id} leads, term ${s.term}` : 'no leader'}</span>
          <span>
            {s.quorum.healthy}/{s.quorum.voters} voters
          </span>
          <span>offset {count(s.last_offset)}</span>
          <span>via {s.node_id}</span>
        </span>
      )}
      <span class="tools">
        <button type="button" class="quiet" onClick={() => (clock.value = clock.value === 'UTC' ? 'local' : 'UTC')} title="Show times in UTC or in the zone of the browser; each has both in its title">
          {clock.value === 'UTC' ? 'UTC' : 'local time'}
        </button>
        <label class="quiet">
          <span>Theme</span>
          <select value={theme.value} onChange={(e) => (theme.value = e.currentTarget.value)}>
            <option value="system">system</option>
            <option value="dark">dark</option>
            <option value="light">light</option>
          </select>
        </label>
        <button type="button" class="quiet" onClick={() => (help.value = true)} aria-label="Keyboard help">
          ?
        </button>
        {signedIn.value && (
          <button type="button" class="quiet" onClick={() => void signOut()}>
            Sign out
          </button>
        )}
      </span>
    </header>
  );
}

function Nav() {
  const nav = useRef<HTMLElement>(null);
  // In a narrow window the menu is one line that scrolls.
  useEffect(() => {
    const [list, shown] = [nav.current!.firstElementChild!, nav.current!.querySelector<HTMLElement>('[aria-current]')];
    if (shown) list.scrollLeft = shown.offsetLeft - (list.clientWidth - shown.clientWidth) / 2;
  }, [route.value.screen]);
  return (
    <nav aria-label="Screens" ref={nav}>
      <ul>
        {screens
          .filter((s) => s.title)
          .map((s) => (
            <li key={s.name}>
              <a href={href(s.name)} aria-current={route.value.screen === s.name ? 'page' : undefined}>
                {s.title}
              </a>
            </li>
          ))}
      </ul>
    </nav>
  );
}

// AskToken is shown once the cluster has refused a call for want of a token. It changes one into a session.
function AskToken() {
  const [value, type] = useState('');
  const [wrong, fail] = useState('');
  return (
    <Screen title="Token" about="This cluster answers only to callers that have its token.">
      <Panel>
        <form
          class="token"
          onSubmit={(e) => {
            e.preventDefault();
            signIn(value.trim()).catch((e) => fail(asDetail(e).message));
          }}
        >
          <label class="field">
            <span>Token</span>
            <input type="password" name="token" value={value} onInput={(e) => type(e.currentTarget.value)} autocomplete="current-password" required autofocus />
          </label>
          <button type="submit" class="primary">
            Sign in
          </button>
        </form>
        {wrong && (
          <p role="alert">
            <Sign tone="bad" /> {wrong}
          </p>
        )}
        <p class="note">The browser keeps a sealed cookie that no page can read, for 12 hours or until it ends. ringlog token create makes a token; that of the cluster is in the file of --token-file.</p>
      </Panel>
    </Screen>
  );
}

function Help() {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} onClose={() => (help.value = false)} aria-label="Keyboard">
      <h2>Keyboard</h2>
      <dl class="keys">
        {[
          ['/', 'go to the first filter'],
          ['j, k', 'next and previous row; arrows, Home, End and Page keys, too'],
          ['Enter', 'open the row'],
          ['Esc', 'close what is open'],
          ['p', 'pause or continue Live'],
          ['?', 'this'],
        ].map(([k, v]) => (
          <div key={k}>
            <dt>
              <kbd>{k}</kbd>
            </dt>
            <dd>{v}</dd>
          </div>
        ))}
      </dl>
      <p>Each screen is a URL that can be shared, filters included.</p>
      <div class="buttons">
        <button type="button" onClick={() => dialog.current!.close()} autofocus>
          Close
        </button>
      </div>
    </dialog>
  );
}

// keyboard has the keys that work everywhere. Tables have those that move in them.
function keyboard(e: KeyboardEvent) {
  const target = e.target as HTMLElement;
  const typing = target.closest('input,textarea,select,dialog');
  if (e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.key === 'Escape' && target instanceof HTMLInputElement) target.blur();
  if (typing) return;
  if (e.key === 'Escape') document.querySelector<HTMLElement>('main [data-closes]')?.click();
  const rows = document.querySelector<HTMLElement>('.rows,.table');
  if (e.key === '/') {
    e.preventDefault();
    document.querySelector<HTMLElement>('main input, main select')?.focus();
  } else if (e.key === '?') {
    help.value = true;
  } else if (e.key === 'p') {
    document.querySelector<HTMLElement>('main [aria-pressed]')?.click();
  } else if (e.key === 'j' || e.key === 'k') {
    if (rows?.classList.contains('rows')) {
      rows.dispatchEvent(new KeyboardEvent('keydown', { key: e.key }));
    } else if (rows) {
      const all = [...rows.querySelectorAll<HTMLElement>('tbody tr')];
      const at = all.indexOf(document.activeElement as HTMLElement);
      all[Math.max(0, Math.min(all.length - 1, at + (e.key === 'j' ? 1 : -1)))]?.focus();
    }
    e.preventDefault();
  }
}

function App() {
  const r = route.value;
  const screen = screens.find((s) => s.name === r.screen);
  useEffect(() => {
    addEventListener('keydown', keyboard);
    return () => removeEventListener('keydown', keyboard);
  }, []);
  // A new screen begins at its top.
  useEffect(() => scrollTo(0, 0), [r.screen, r.part]);
  const Shown = screen?.show;
  return (
    <>
      <a class="skip" href="#main" onClick={(e) => (e.preventDefault(), document.getElementById('main')?.focus())}>
        Skip to the content
      </a>
      <Strip />
      {!hasLeader.value && (
        <p class={cx('banner')} role="alert" data-test="no-leader">
          <Sign tone="bad" /> There is no leader. What you see is what this node has; changes are refused until there is one. <a href={href('story')}>What each voter sees</a>
        </p>
      )}
      {statusError.value && status.value && !refused.value && (
        <div class="banner">
          <Failed error={statusError.value} />
        </div>
      )}
      <div class="body">
        <Nav />
        {refused.value ? (
          <AskToken />
        ) : Shown ? (
          <Shown key={r.screen + '/' + r.part} />
        ) : (
          <Screen title="No such screen" about={`There is no screen “${r.screen}”.`}>
            <p>
              <a href={href('overview')}>Overview</a>
            </p>
          </Screen>
        )}
      </div>
      {help.value && <Help />}
    </>
  );
}

startStatus();
const root = document.getElementById('app')!;
root.replaceChildren();
render(<App />, root);
