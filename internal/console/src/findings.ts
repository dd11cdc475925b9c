// What is wrong now, from a status, the worst first, each with its remedy.
import { bytes, command, duration, lag, lagText, noun, plural, quorumText, since } from './format';
import { href } from './state';
import type { Status } from './types';
import type { Tone } from './ui';

// From how many ms on a member that stores nothing is stalled.
const stalledAfter = 1000;

export interface Finding {
  tone: Tone;
  what: string;
  remedy: string;
  command?: string;
  to?: string;
}

export function findings(s: Status): Finding[] {
  const out: Finding[] = [];
  const add = (tone: Tone, what: string, remedy: string, cmd?: string, to?: string) => out.push({ tone, what, remedy, command: cmd, to });

  // What keeps the cluster, or this node, from accepting events.
  if (s.diverged) add('bad', `The state of ${s.node_id} differs from the majority's`, 'It serves nothing. Remove the node, empty its data folder, and let it join again.', command('cluster', 'remove', s.node_id, '--dry-run'));
  if (s.not_formed) add('bad', `${s.node_id} is in no cluster yet: ${s.not_formed}`, 'Start the other nodes, or name one of them with --join.');
  if (s.join_refused) add('bad', `The cluster does not admit ${s.node_id}: ${s.join_refused}`, 'Correct that on the node, or remove the node.', 'ringlog cluster members');
  if (!s.leader_id && !s.not_formed) {
    const outage = s.outage;
    const text = outage ? ` for ${duration(since(outage.since))}; ${plural(outage.refused, 'write was', 'writes were')} refused here` : '';
    add('bad', `No leader${text}`, outage?.cause === 'unreachable' ? `${s.node_id} does not reach a majority: start the voters that are down, or repair the network between them.` : 'An election takes about a second. If none succeeds, look at what each voter sees.', 'ringlog cluster outage', href('story'));
  } else if (s.quorum.margin < 0) {
    add('bad', `No quorum: ${quorumText(s.quorum)}`, 'Start the voters that are down. If most are lost for good: ringlog cluster recover.', 'ringlog cluster outage', href('story'));
  }

  for (const m of s.members) {
    if (m.disk?.full) add('bad', `The disk of ${m.id} is full: ${bytes(m.disk.free_bytes)} free, it needs ${bytes(m.disk.min_free_bytes)}`, 'Make room on the disk, or trim the log.', 'ringlog compact --dry-run', href('settings'));
    if (!m.healthy) {
      const why = m.unreachable === 'raft' ? ' over raft' : '';
      const remedy = m.other_folder
        ? `Another data folder answers as ${m.id}. If that is a second node, give it another --id; else remove ${m.id}, then it can join.`
        : m.other_cluster
          ? `A node of another cluster answers as ${m.id}: stop it, and start ${m.id} with its own data folder.`
          : m.other_token
            ? `${m.id} and ${s.node_id} have different cluster tokens: start both with the same --token-file.`
            : m.unreachable === 'raft'
              ? `It answers over HTTP but not over raft: check its raft address, ${m.raft}.`
              : `Start ${m.id}, or look at its log. If it is lost for good, remove it.`;
      add(s.quorum.margin <= 0 ? 'bad' : 'warn', `${m.voter ? 'Voter' : 'Member'} ${m.id} does not answer${why}`, remedy, 'ringlog cluster status', href('members'));
    }
    if (m.healthy && (m.stalled_ms ?? 0) >= stalledAfter) add('warn', `${m.id} lacks entries of the raft log and has stored none for ${duration((m.stalled_ms ?? 0) / 1000)}`, 'Its disk hangs, or it is overloaded: look at the disk of that host.', 'ringlog cluster status', href('members'));
  }
  if (s.leader_id && s.quorum.margin === 0 && s.quorum.voters > 1) add('warn', 'The cluster may not lose another voter', 'Start the voter that is down, or add one.', 'ringlog cluster status', href('members'));
  const versions = [...new Set(s.members.map((m) => m.version).filter(Boolean))];
  if (versions.length > 1) add('warn', `Members have different versions: ${versions.join(', ')}`, 'Finish the upgrade: one node after the other, the leader last.', 'ringlog cluster status', href('members'));
  if (s.tls?.problem) add('warn', `Certificate: ${s.tls.problem}`, 'Correct the files; the node reads them again by itself.');
  if (s.tls && since(s.tls.expires) > -30 * 86400) add(since(s.tls.expires) > 0 ? 'bad' : 'warn', `The certificate is valid until ${s.tls.expires}`, 'Make a new one: the node reads it by itself.', 'ringlog help cert');

  // What those who use the cluster notice.
  if (s.backpressure.active) add('warn', `The queue of the leader has been full${s.backpressure.since ? ` for ${duration(since(s.backpressure.since))}` : ''}: publishers are refused with 429`, 'The voters cannot keep up: look at their disks, or publish in batches.', 'ringlog status', href('plots'));
  const subs = s.event_subscription_status;
  for (const u of subs.unheard) add('warn', `Nobody listens to “${u.name}” since ${u.client} was lost, ${duration(since(u.since))} ago`, `Start the daemon again${u.host ? ` on ${u.host}` : ''}.`, 'ringlog clients', href('wiring'));
  if (subs.critical_detached > 0) add('warn', `${plural(subs.critical_detached, 'critical subscription is', 'critical subscriptions are')} not attached`, 'Look at the daemons that have them.', 'ringlog clients', href('wiring'));
  for (const c of s.cursors) {
    if (c.stalled) add('warn', `${c.group ? 'Group' : 'Cursor'} ${c.name} does not move: it lags by ${lagText(c)} ${noun(lag(c), 'event')}, and by ${duration(c.lag_seconds)}`, 'See whether its reader runs; if it is not needed any more, remove it, since the log keeps events for it.', command('cursor', 'info', c.name), href('cursors', c.name));
    if (c.backpressure?.since) add('warn', `${c.name} lags by more than its limit of ${plural(c.backpressure.activate_at, 'event')}`, 'Start more readers, or have it skip what it need not see.', command('cursor', 'info', c.name), href('cursors', c.name));
    if (c.gap) add('warn', `${c.name} has not read offsets ${c.gap.from} to ${c.gap.to}, which were trimmed (${c.gap.reason})`, 'Those events are gone. Commit past the gap, and have retention keep more.', command('cursor', 'info', c.name), href('cursors', c.name));
  }
  const dead = s.dead_letters.count - s.dead_letters.redriven;
  if (dead > 0) add('warn', `${plural(dead, 'dead letter waits', 'dead letters wait')}${s.dead_letters.oldest ? `, the oldest for ${duration(since(s.dead_letters.oldest))}` : ''}`, 'See what the handlers failed on; redrive them once that is repaired.', 'ringlog dlq errors', href('letters'));
  for (const o of s.overdue_chains.list.slice(0, 5)) add('warn', `Run ${o.correlation_id} of ${o.flow} waits for ${o.missing} for ${duration(o.waiting_seconds)}`, `It was due after ${duration(o.deadline_seconds)}: see what should emit it.`, command('chain', o.correlation_id), href('run', o.correlation_id));
  for (const h of s.handler_timeouts.handlers.filter((h) => h.breaker === 'open').slice(0, 5)) add('warn', `The circuit breaker of ${h.subscription} in ${h.client} is open`, h.last_error ?? 'See the log of that daemon.', 'ringlog clients', href('wiring'));
  for (const w of s.warnings ?? []) if (!out.some((f) => w.includes(f.what))) add('warn', w, 'See the status of this node.', 'ringlog status');

  const rank: Record<Tone, number> = { bad: 0, warn: 1, idle: 2, ok: 3 };
  return out.toSorted((a, b) => rank[a.tone] - rank[b.tone]);
}
