import { useState } from 'preact/hooks';
import { asDetail, get, type ErrorDetail } from '../api';
import { both, command, quote } from '../format';
import { signedIn } from '../api';
import { route, status } from '../state';
import type { StoredEvent } from '../types';
import { Command, Copy, Facts, Failed, Link, Panel, Screen, Sign, Tree, useLoad, View } from '../ui';

// publishable is what of an event a publish takes, to send it again.
function publishable(e: StoredEvent): Record<string, unknown> {
  const { type, payload, source, key, correlation_id, causation_id } = e;
  return JSON.parse(JSON.stringify({ type, payload, source, key, correlation_id, causation_id }));
}

function asCurl(e: StoredEvent): string {
  const auth = signedIn.value ? ' -H "Authorization: Bearer $RINGRIFT_CLUSTER_AUTH_TOKEN"' : '';
  return `curl -sS --fail-with-body ${quote(location.origin + '/v1/events')}${auth} --json ${quote(JSON.stringify(publishable(e)))}`;
}

// pythonValue writes JSON as Python does.
function pythonValue(v: unknown): string {
  if (v === null) return 'None';
  if (typeof v === 'boolean') return v ? 'True' : 'False';
  if (Array.isArray(v)) return `[${v.map(pythonValue).join(', ')}]`;
  if (typeof v === 'object') return `{${Object.entries(v).map(([k, x]) => `${JSON.stringify(k)}: ${pythonValue(x)}`).join(', ')}}`;
  return JSON.stringify(v);
}

function asPython(e: StoredEvent): string {
  const { type, payload, ...rest } = publishable(e);
  const more = Object.entries(rest).map(([k, v]) => `, ${k}=${JSON.stringify(v)}`).join('');
  return `from ringlog import Client\n\nwith Client(${JSON.stringify(location.origin)}) as log:\n    log.publish(${JSON.stringify(type)}, ${pythonValue(payload)}${more})\n`;
}

function asGo(e: StoredEvent): string {
  const fields = ([['Source', e.source], ['Key', e.key], ['CorrelationID', e.correlation_id], ['CausationID', e.causation_id]] as const)
    .filter(([, v]) => v)
    .map(([k, v]) => `ev.${k} = ${JSON.stringify(v)}\n`)
    .join('');
  const json = JSON.stringify(e.payload);
  const raw = json.includes('`') ? JSON.stringify(json) : '`' + json + '`';
  return `c, err := client.New(client.Config{Endpoints: []string{${JSON.stringify(location.origin)}}})\nif err != nil {\n\treturn err\n}\nev := event.New(event.Type(${JSON.stringify(e.type)}), json.RawMessage(${raw}))\n${fields}_, err = c.Publish(ctx, ev)\n`;
}

interface Fate {
  fate: string;
  reason: string;
  in_front?: number;
  filtered_by?: { part: string; wants: string[]; has: string }[];
  letter?: { id: number; error?: string };
}

// Explain answers why an event was delivered to a cursor, or was not.
export function Explain({ offset, cursor }: { offset?: number; cursor?: string }) {
  const [name, setName] = useState(cursor ?? '');
  const [at, setAt] = useState(offset ? String(offset) : '');
  const [fate, setFate] = useState<Fate>();
  const [error, setError] = useState<ErrorDetail>();
  const ask = async (e: Event) => {
    e.preventDefault();
    setError(undefined);
    setFate(undefined);
    try {
      setFate(await get<Fate>(`/v1/explain?cursor=${encodeURIComponent(name)}&offset=${encodeURIComponent(at)}`));
    } catch (e) {
      setError(asDetail(e));
    }
  };
  return (
    <Panel title={cursor ? 'Why was an event not delivered?' : 'What became of it for a reader?'}>
      <form class="inline" onSubmit={ask}>
        {cursor === undefined && (
          <label class="field">
            <span>Cursor or group</span>
            <input name="explain-cursor" value={name} onInput={(e) => setName(e.currentTarget.value)} list="explain-cursors" autocomplete="off" spellcheck={false} required />
            <datalist id="explain-cursors">
              {status.value?.cursors.map((c) => (
                <option key={c.name} value={c.name} />
              ))}
            </datalist>
          </label>
        )}
        {offset === undefined && (
          <label class="field">
            <span>Offset</span>
            <input name="explain-offset" inputMode="numeric" pattern="[0-9]+" value={at} onInput={(e) => setAt(e.currentTarget.value)} required />
          </label>
        )}
        <button type="submit">Explain</button>
      </form>
      {error && <Failed error={error} />}
      {fate && (
        <div class="result" role="status" data-test="fate">
          <strong>{fate.fate}</strong>: {fate.reason}
          {fate.filtered_by?.map((f) => (
            <p key={f.part}>
              Its filter wants {f.part} {f.wants.join(', ')}; the event has {f.has || 'none'}.
            </p>
          ))}
          {fate.letter && (
            <p>
              <Link to="letters" part={String(fate.letter.id)}>
                Dead letter {fate.letter.id}
              </Link>
              : {fate.letter.error}
            </p>
          )}
        </div>
      )}
      {(name && at) && <Command text={command('explain', ['--cursor', name], ['--offset', at])} />}
    </Panel>
  );
}

export function EventDetail({ e }: { e: StoredEvent }) {
  return (
    <>
      <Facts
        of={[
          ['offset', <Link to="event" part={String(e.offset)}>{e.offset}</Link>],
          ['type', <Link to="catalogue" part={e.type}>{e.type}</Link>],
          ['published as', e.original_type],
          ['source', e.source && <Link to="live" query={{ source: e.source, from: -200 }}>{e.source}</Link>],
          ['key', e.key && <Link to="live" query={{ key: e.key, from: 'start' }}>{e.key}</Link>],
          ['run', e.correlation_id && <Link to="run" part={e.correlation_id}>{e.correlation_id}</Link>],
          ['caused by', e.causation_id],
          ['dedup id', e.dedup_id],
          ['happened', e.time && both(e.time)],
          ['appended', e.appended_at && both(e.appended_at)],
          ['term', e.term],
          ['redrive of letter', e.redrive && <Link to="letters" part={String(e.redrive)}>{e.redrive}</Link>],
          ['for the cursor alone', e.target && <Link to="cursors" part={e.target}>{e.target}</Link>],
          ['published by the span', e.traceparent && <code>{e.traceparent}</code>],
          ['hash', e.hash && <code class="hash">{e.hash}</code>],
        ]}
      />
      <h3>Payload</h3>
      <div class="payload" data-test="payload">
        <Tree value={e.payload} />
      </div>
      <div class="copies" role="group" aria-label="Copy as">
        <Copy text={JSON.stringify(e, null, 2)} label="JSON" />
        <Copy text={asCurl(e)} label="curl" />
        <Copy text={asPython(e)} label="Python" />
        <Copy text={asGo(e)} label="Go" />
      </div>
      <Command text={command('get', e.offset)} />
    </>
  );
}

export function EventScreen() {
  const offset = Number(route.value.part);
  const event = useLoad<StoredEvent>(Number.isInteger(offset) && offset > 0 ? `/v1/events/${offset}` : undefined);
  return (
    <Screen
      title={`Event ${route.value.part}`}
      about="One event of the log."
      actions={
        offset > 1 ? (
          <>
            <a class="button" href={`#/event/${offset - 1}`}>
              Previous
            </a>
            <a class="button" href={`#/event/${offset + 1}`}>
              Next
            </a>
          </>
        ) : undefined
      }
    >
      {!(offset > 0) ? (
        <p>
          <Sign tone="bad" /> {route.value.part} is no offset.
        </p>
      ) : (
        <View of={event}>
          {(e) => (
            <div class="columns">
              <Panel title="What it is">
                <EventDetail e={e} />
              </Panel>
              <Explain offset={e.offset} />
            </div>
          )}
        </View>
      )}
    </Screen>
  );
}
