import { useState } from 'preact/hooks';
import { call } from '../api';
import { bytes, command, count, plural } from '../format';
import { route } from '../state';
import type { Setting } from '../types';
import { Act, Badge, Choice, Empty, Panel, post, Rows, Screen, Search, useAct, useLoad, View } from '../ui';

// sized adds to a number of bytes what people read.
const sized = (key: string, value: string) => (/bytes$/.test(key) && Number(value) >= 1024 ? `${value} (${bytes(Number(value))})` : value);

export function Settings() {
  const settings = useLoad<{ settings: Setting[] }>('/v1/settings', 10000);
  const { act, open } = useAct();
  const q = route.value.query;
  const text = (q.get('name') ?? '').toLowerCase();
  return (
    <Screen
      title="Settings"
      about="Settings of the whole cluster. A change is in the log, and in force on all nodes once it is applied."
      command="ringlog settings ls"
      actions={
        <button type="button" onClick={() => open((close) => <Compact close={close} />)}>
          Trim the log
        </button>
      }
    >
      {act}
      <form class="filters" onSubmit={(e) => e.preventDefault()} role="search" aria-label="Filter settings">
        <Search name="name" label="Name or description" />
        <Choice
          name="changed"
          label="Show"
          values={[
            ['', 'all'],
            ['true', 'those that were changed'],
          ]}
        />
      </form>
      <View of={settings}>
        {(s) => {
          const rows = s.settings.filter((x) => (!text || (x.key + ' ' + x.doc).toLowerCase().includes(text)) && (!q.get('changed') || x.value !== x.default));
          return (
            <Panel title={plural(rows.length, 'setting')}>
              {rows.length === 0 ? (
                <Empty>No matches.</Empty>
              ) : (
                <Rows<Setting>
                  label="Settings"
                  rows={rows}
                  id={(x) => x.key}
                  open={(x) => open((close) => <Change s={x} close={close} done={settings.again} />)}
                  tall
                  columns={[
                    { name: 'Setting', width: 'minmax(15rem,.9fr)', by: (x) => x.key, cell: (x) => <code>{x.key}</code> },
                    { name: 'Value', width: 'minmax(12.5rem,.7fr)', by: (x) => x.value, cell: (x) => <strong>{sized(x.key, x.value) || '–'}</strong> },
                    { name: 'Default', width: 'minmax(5rem,.5fr)', cell: (x) => (x.value === x.default ? 'default' : <Badge tone="idle">{sized(x.key, x.default) || '–'}</Badge>) },
                    { name: 'What it is', width: 'minmax(0,2.2fr)', cell: (x) => <span title={x.doc}>{x.doc}</span> },
                    {
                      name: 'Actions',
                      width: '5.5rem',
                      cell: (x) => (
                        <button type="button" class="quiet" aria-label={`Change ${x.key}`} onClick={() => open((close) => <Change s={x} close={close} done={settings.again} />)}>
                          Change
                        </button>
                      ),
                    },
                  ]}
                />
              )}
            </Panel>
          );
        }}
      </View>
    </Screen>
  );
}

function Change({ s, close, done }: { s: Setting; close: () => void; done: () => void }) {
  const [value, setValue] = useState(s.value);
  return (
    <Act
      title={`Change ${s.key}`}
      label="Change"
      ready={value !== s.value}
      close={close}
      done={done}
      command={value === '' ? `ringlog settings set ${s.key} ""` : command('settings', 'set', s.key, value)}
      run={async () => {
        const now = await call<Setting>('PUT', `/v1/settings/${encodeURIComponent(s.key)}`, { value });
        return (
          <>
            {s.key} is {sized(s.key, now.value) || 'empty'} now; it was {sized(s.key, s.value) || 'empty'}.
          </>
        );
      }}
    >
      <p>{s.doc}</p>
      <label class="field">
        <span>Value; leave empty for the default{s.default && `, ${sized(s.key, s.default)}`}</span>
        <input name="value" value={value} onInput={(e) => setValue(e.currentTarget.value)} autofocus spellcheck={false} autocomplete="off" />
      </label>
    </Act>
  );
}

interface Trimmed {
  first: number;
  removed: number;
  held_by?: string;
  passed?: string[];
}

// Compact trims the log; the dry run says what goes, and who holds it back.
function Compact({ close }: { close: () => void }) {
  const [age, setAge] = useState('');
  const [force, setForce] = useState(false);
  const [dry, setDry] = useState<Trimmed>();
  const body = { ...(age ? { older_than: age } : {}), ...(force ? { force: true } : {}) };
  return (
    <Act
      title="Trim the log"
      label={dry ? `Remove ${plural(dry.removed, 'event')}` : 'Dry run'}
      danger={!!dry}
      typed={dry ? 'trim' : undefined}
      ready={!dry || dry.removed > 0}
      close={close}
      command={command('compact', ['--older-than', age], force ? '--force' : '', dry ? '--yes' : '--dry-run')}
      run={async () => {
        const r = await post<Trimmed>('/v1/compact', { ...body, ...(dry ? {} : { dry_run: true }) });
        if (!dry) {
          setDry(r);
          return undefined;
        }
        return `${plural(r.removed, 'event is', 'events are')} removed; the log begins at offset ${count(r.first)}.`;
      }}
    >
      <label class="field">
        <span>Older than, such as 7d; leave empty for what retention allows</span>
        <input
          name="older"
          value={age}
          onInput={(e) => {
            setAge(e.currentTarget.value);
            setDry(undefined);
          }}
        />
      </label>
      <label>
        <input
          type="checkbox"
          checked={force}
          onChange={(e) => {
            setForce(e.currentTarget.checked);
            setDry(undefined);
          }}
        />{' '}
        also events that cursors have not read, which get a gap
      </label>
      {dry && (
        <div class="result" role="status" data-test="dry-run">
          Dry run: {plural(dry.removed, 'event')} would go, and the log would begin at {count(dry.first)}.{dry.held_by && ` ${dry.held_by} holds the events after it.`}
          {!!dry.passed?.length && ` These get a gap: ${dry.passed.join(', ')}.`}
        </div>
      )}
    </Act>
  );
}
