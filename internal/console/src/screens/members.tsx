import { useState } from 'preact/hooks';
import { call } from '../api';
import { bytes, command, duration, noun, plural, quorumText } from '../format';
import { status } from '../state';
import type { Member, Quorum } from '../types';
import { Act, Badge, Failed, Panel, post, Screen, Sign, Stat, Table, useAct, useLoad, View } from '../ui';

interface Membership {
  members: Member[];
  quorum: Quorum;
  leader_id?: string;
}

interface Changed {
  id?: string;
  quorum: Quorum;
  warning?: string;
}

const fullText = (q: Quorum) => `${quorumText(q)}, and ${Math.max(0, q.margin)} may fail`;

export function Members() {
  const members = useLoad<Membership>('/v1/members', 2000);
  const { act, open } = useAct();
  const again = members.again;
  return (
    <Screen
      title="Members"
      about="The nodes of the cluster. The leader checks each change, and makes one at a time."
      command="ringlog cluster members"
      actions={
        <>
          <button type="button" onClick={() => open((close) => <Add close={close} done={again} />)}>
            Add a node
          </button>
          <button type="button" onClick={() => open((close) => <StepDown close={close} done={again} />)}>
            Transfer leadership
          </button>
        </>
      }
    >
      {act}
      <View of={members}>
        {(m) => (
          <>
            <div class="stats">
              <Stat name="May fail" value={m.leader_id ? Math.max(0, m.quorum.margin) : '–'} unit={noun(Math.max(0, m.quorum.margin), 'voter')} tone={!m.leader_id || m.quorum.margin < 0 ? 'bad' : m.quorum.margin === 0 && m.quorum.voters > 1 ? 'warn' : undefined} note={fullText(m.quorum)} />
              <Stat name="Leader" value={m.leader_id || 'none'} tone={m.leader_id ? undefined : 'bad'} />
              <Stat name="Members" value={m.members.length} note={plural(m.members.filter((x) => x.voter).length, 'voter')} />
            </div>
            {!m.leader_id && <Failed error={{ code: 'no_leader', message: 'Members are changed by the leader, and there is none.', remedy: 'wait for an election, or see what each voter sees' }} />}
            <Panel>
              <Table<Member>
                label="Members"
                rows={m.members}
                id={(x) => x.id}
                columns={[
                  { name: 'Member', cell: (x) => <strong>{x.id}</strong> },
                  { name: 'State', cell: (x) => (x.healthy ? <Badge tone="ok">{x.id === m.leader_id ? 'leads' : 'answers'}</Badge> : <Badge tone="bad">does not answer</Badge>) },
                  { name: 'Votes', cell: (x) => (x.voter ? 'yes' : 'no') },
                  { name: 'Last contact', right: true, cell: (x) => (x.id === status.value?.node_id ? 'this node' : x.last_contact_ms === undefined || x.last_contact_ms < 0 ? 'never' : `${duration(x.last_contact_ms / 1000)} ago`) },
                  { name: 'Lag', right: true, cell: (x) => (x.trailing_entries ? plural(x.trailing_entries, 'entry', 'entries') : '–') },
                  { name: 'Disk free', right: true, cell: (x) => (x.disk?.full ? <Badge tone="bad">full</Badge> : bytes(x.disk?.free_bytes)) },
                  { name: 'Version', cell: (x) => `${x.version ?? '–'}${x.feature_level ? ` (level ${x.feature_level})` : ''}` },
                  { name: 'Raft', cell: (x) => <code>{x.raft}</code> },
                  { name: 'HTTP', cell: (x) => <code>{x.http}</code> },
                  {
                    name: 'Actions',
                    cell: (x) => (
                      <span class="actions">
                        <button type="button" class="quiet" onClick={() => open((close) => <Vote m={x} close={close} done={again} />)} aria-label={`${x.voter ? 'Demote' : 'Promote'} ${x.id}`}>
                          {x.voter ? 'Demote' : 'Promote'}
                        </button>
                        <button type="button" class="quiet" onClick={() => open((close) => <Remove m={x} close={close} done={again} />)} aria-label={`Remove ${x.id}`}>
                          Remove
                        </button>
                      </span>
                    ),
                  },
                ]}
              />
            </Panel>
          </>
        )}
      </View>
    </Screen>
  );
}

const outcome = (text: string, c: Changed) => (
  <>
    {text}: {fullText(c.quorum)}.
    {c.warning && (
      <p>
        <Sign tone="warn" /> {c.warning}
      </p>
    )}
  </>
);

// Remaining says what the quorum is once a member has no vote. A dialog asks for itself: the page may be some seconds old.
function Remaining({ m }: { m: Member }) {
  const of = useLoad<Membership>('/v1/members', 2000).data;
  if (!of) return null;
  const voters = of.quorum.voters - (m.voter ? 1 : 0);
  const healthy = of.quorum.healthy - (m.voter && m.healthy ? 1 : 0);
  const spare = healthy - (Math.floor(voters / 2) + 1);
  return (
    <div class="result" data-test="preview">
      <Sign tone={spare < 0 ? 'bad' : spare === 0 ? 'warn' : 'ok'} /> After it {plural(voters, 'voter remains', 'voters remain')}, {healthy} of them {noun(healthy, 'answers', 'answer')}, and {spare < 0 ? 'there is no majority: the leader refuses it' : `${spare} may fail`}.
      {m.id === of.leader_id && <p>{m.id} leads: another leader has to be elected, and publishers wait for a moment.</p>}
    </div>
  );
}

function Vote({ m, close, done }: { m: Member; close: () => void; done: () => void }) {
  const verb = m.voter ? 'demote' : 'promote';
  return (
    <Act title={m.voter ? `Demote ${m.id}` : `Give ${m.id} a vote`} label={m.voter ? 'Demote' : 'Promote'} danger={m.voter} typed={m.voter ? m.id : undefined} close={close} done={done} command={command('cluster', verb, m.id, m.voter ? '--yes' : '')} run={async () => outcome(m.voter ? `${m.id} has no vote now` : `${m.id} votes now`, await post<Changed>(`/v1/members/${encodeURIComponent(m.id)}/${verb}`, {}))}>
      <p>{m.voter ? 'It still gets all events, and has no vote.' : 'It counts for the majority once it has caught up.'}</p>
      {m.voter && <Remaining m={m} />}
    </Act>
  );
}

function Remove({ m, close, done }: { m: Member; close: () => void; done: () => void }) {
  return (
    <Act title={`Remove ${m.id}`} label="Remove" danger typed={m.id} close={close} done={done} command={command('cluster', 'remove', m.id, '--yes')} run={async () => outcome(`${m.id} is removed`, await call<Changed>('DELETE', `/v1/members/${encodeURIComponent(m.id)}`))}>
      <p>A node that was removed does not return by itself: add it again while it runs, or start it with an empty data folder.</p>
      <Remaining m={m} />
    </Act>
  );
}

function StepDown({ close, done }: { close: () => void; done: () => void }) {
  const [to, setTo] = useState('');
  const members = useLoad<Membership>('/v1/members', 2000).data;
  const others = members?.members.filter((m) => m.voter && m.id !== members.leader_id) ?? [];
  return (
    <Act
      title="Transfer leadership"
      label="Transfer"
      close={close}
      done={done}
      command={command('cluster', 'step-down', ['--to', to])}
      run={async () => {
        const r = await post<{ from: string; leader_id: string; term: number }>('/v1/cluster/step-down', to ? { to } : {});
        return `${r.leader_id} leads now, in term ${r.term}; it was ${r.from}.`;
      }}
    >
      <p>Publishers wait for a moment, and nothing is lost.</p>
      <label class="field">
        <span>To</span>
        <select name="to" value={to} onChange={(e) => setTo(e.currentTarget.value)}>
          <option value="">a voter that has caught up</option>
          {others.map((m) => (
            <option key={m.id} value={m.id} disabled={!m.healthy}>
              {m.id}
              {m.healthy ? '' : ' (does not answer)'}
            </option>
          ))}
        </select>
      </label>
    </Act>
  );
}

function Add({ close, done }: { close: () => void; done: () => void }) {
  const [http, setHttp] = useState('');
  const [voter, setVoter] = useState(true);
  return (
    <Act title="Add a node" label="Add" ready={http.trim() !== ''} close={close} done={done} command={command('cluster', 'add', http || 'URL', voter ? '' : '--non-voter')} run={async () => {
      const c = await post<Changed>('/v1/members', { http: http.trim(), voter });
      return outcome(`${c.id ?? http} is added`, c);
    }}>
      <p>Start the node first, with an empty data folder. Its name and raft address are read from it.</p>
      <label class="field">
        <span>Its HTTP address, as in http://10.0.0.4:8770</span>
        <input name="http" value={http} onInput={(e) => setHttp(e.currentTarget.value)} autofocus spellcheck={false} />
      </label>
      <label>
        <input type="checkbox" checked={voter} onChange={(e) => setVoter(e.currentTarget.checked)} /> with a vote
      </label>
    </Act>
  );
}
