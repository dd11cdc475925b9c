// A cluster of the built binary, and the calls by which tests prepare what the console shows.
import { spawn, execFile } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export const binary = process.env.RINGLOG_BINARY;
if (!binary) throw new Error('RINGLOG_BINARY names the binary to test: go build -o ringlog ./cmd/ringlog');

// until waits for a condition, which may throw until it holds.
export async function until(what, condition, seconds = 30) {
  const end = Date.now() + seconds * 1000;
  let why;
  for (;;) {
    try {
      const value = await condition();
      if (value) return value;
      why = undefined;
    } catch (e) {
      why = e;
    }
    if (Date.now() > end) throw new Error(`${what}: not within ${seconds} s`, { cause: why });
    await new Promise((r) => setTimeout(r, 50));
  }
}

// ended waits until a process is gone.
const ended = (child) => (child.exitCode !== null || child.signalCode !== null ? Promise.resolve() : new Promise((r) => child.once('exit', r)));

// call makes one call of the HTTP interface, again where it says that nothing has happened.
export async function call(base, method, path, body, headers = {}) {
  return until(`${method} ${path}`, async () => {
    const r = await fetch(base + path, { method, headers: { ...(body === undefined ? {} : { 'Content-Type': 'application/json' }), ...headers }, body: body === undefined ? undefined : JSON.stringify(body) });
    if (r.status === 503 || r.status === 429) return undefined;
    const text = await r.text();
    if (!r.ok) throw new Error(`${method} ${path}: ${r.status} ${text}`);
    return { json: text.startsWith('{"offset"') && text.includes('\n{') ? text.trim().split('\n').map((l) => JSON.parse(l)) : JSON.parse(text) };
  }).then((a) => a.json);
}

// run runs a command of the binary and returns how it ended.
export function run(base, args, { seconds = 20, env = {} } = {}) {
  return new Promise((resolve) => {
    execFile(binary, args, { timeout: seconds * 1000, env: { ...process.env, RINGLOG_ENDPOINTS: base, ...env } }, (error, stdout, stderr) =>
      resolve({ code: error ? (error.killed ? 'killed' : error.code) : 0, stdout, stderr }));
  });
}

// Cluster is three nodes of ringlog dev, which starts a node that was killed again after five seconds.
export class Cluster {
  static async start() {
    const c = new Cluster();
    c.child = spawn(binary, ['dev', '--http-port', '0', '--raft-port', '0'], { stdio: ['ignore', 'pipe', 'pipe'] });
    c.output = '';
    c.nodes = new Map();
    const read = (data) => {
      c.output += data;
      // The table at the start, and the line of each restart.
      for (const [, id, pid, http] of c.output.matchAll(/^(n\d)\s+(\d+)\s+(http:\S+)/gm)) if (!c.nodes.has(id)) c.nodes.set(id, { id, pid: Number(pid), http });
      for (const [, id, pid] of c.output.matchAll(/^(n\d) runs again, with the PID (\d+)/gm)) if (c.nodes.has(id)) c.nodes.get(id).pid = Number(pid);
    };
    c.child.stdout.on('data', read);
    c.child.stderr.on('data', read);
    await until('three nodes run', () => c.nodes.size === 3, 60);
    return c;
  }

  status(node) {
    return fetch(node.http + '/status').then((r) => r.json());
  }

  async leader() {
    return until('there is a leader', async () => {
      for (const node of this.nodes.values()) {
        const s = await this.status(node).catch(() => undefined);
        if (s?.leader_id) return this.nodes.get(s.leader_id);
      }
    });
  }

  // followers are the nodes that do not lead.
  async followers() {
    const leader = await this.leader();
    return [...this.nodes.values()].filter((n) => n !== leader);
  }

  kill(node) {
    process.kill(node.pid, 'SIGKILL');
  }

  async healthy() {
    await until('all voters are healthy', async () => {
      for (const node of this.nodes.values()) {
        const s = await this.status(node);
        if (!s.leader_id || s.quorum.healthy !== 3) return false;
      }
      return true;
    }, 60);
  }

  async stop() {
    this.child.kill('SIGINT');
    await ended(this.child);
  }
}

// freePort asks the kernel for a port.
const freePort = () => new Promise((resolve, reject) => {
  const s = createServer();
  s.once('error', reject);
  s.listen(0, '127.0.0.1', () => {
    const { port } = s.address();
    s.close(() => resolve(port));
  });
});

// withNode runs one more node while it is used. args are of serve, given the folder that is removed afterwards.
async function withNode(program, id, args, use) {
  const dir = await mkdtemp(join(tmpdir(), 'console-'));
  const http = `127.0.0.1:${await freePort()}`;
  const child = spawn(program, ['serve', '--id', id, '--data-dir', join(dir, id), '--http', http, '--raft', `127.0.0.1:${await freePort()}`, '--tls-mode', 'off', ...(await args(dir))], { stdio: 'ignore' });
  try {
    await until('the node is ready', async () => (await fetch(`http://${http}/readyz`)).ok, 60);
    await use('http://' + http);
  } finally {
    child.kill('SIGTERM');
    await ended(child);
    await rm(dir, { recursive: true, force: true });
  }
}

// withToken runs one node of a cluster with a token.
export const withToken = (token, use) =>
  withNode(binary, 't1', async (dir) => {
    const file = join(dir, 'token');
    await writeFile(file, token, { mode: 0o600 });
    return ['--bootstrap-expect', '1', '--token-file', file];
  }, use);

// withOtherVersion lets a node of another release join the cluster that a node belongs to, and removes it afterwards.
export async function withOtherVersion(base, release, use) {
  const dir = await mkdtemp(join(tmpdir(), 'console-'));
  const program = join(dir, 'ringlog');
  try {
    await new Promise((resolve, reject) => {
      execFile('go', ['build', '-ldflags', `-X main.release=${release}`, '-o', program, '../../cmd/ringlog'], (error, stdout, stderr) => (error ? reject(new Error(stderr)) : resolve()));
    });
    await withNode(program, 'other', async () => ['--join', base], use);
    await until('it is removed', async () => (await run(base, ['cluster', 'remove', 'other', '--yes'])).code === 0);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

// span has published the events of a run that seed makes.
export const span = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';

// seed makes something of each kind that the console shows, and returns the offset of the first event. A cluster that has
// just been formed may elect a leader again, so that it need not be the same each time.
export async function seed(base) {
  const to = (method, path, body, headers) => call(base, method, path, body, headers);
  const flow = ['SELFPLAY_COMPLETE', 'NEW_GAMES_AVAILABLE', 'DATA_SYNC_COMPLETED', 'TRAINING_THRESHOLD_REACHED', 'TRAINING_STARTED'];
  const { results } = await to('POST', '/v1/events', flow.map((type, i) => ({ type, source: 'trainer-3', key: 'hex8_2p', correlation_id: 'run-17', traceparent: span, payload: { config_key: 'hex8_2p', step: i, nested: { list: [1, 2, { deep: true }] } } })));
  await to('POST', '/v1/events', Array.from({ length: 12 }, (_, i) => ({ type: 'EVALUATION_COMPLETED', source: 'evaluator-1', key: `config-${i % 3}`, payload: { elo: 1500 + i } })));
  await to('PUT', '/v1/cursors/trainer', { from: 'start', filter: { types: ['training.*'] } });
  await to('PUT', '/v1/cursors/archiver', { from: 'start' });
  await to('PUT', '/v1/groups/evaluators', { from: 'start', filter: { categories: ['evaluation'] } });
  const { generation } = await to('POST', '/v1/cursors/archiver/open', {});
  for (let i = 1; i <= 6; i++) {
    await to('POST', '/v1/cursors/archiver/deadletter', { offset: results[0].offset + i - 1, generation, handler: 'archive', error: i % 2 ? `OSError: no space left on /nas-${i}` : 'TimeoutError: 30 s', attempts: 3 });
  }
  await to('PUT', '/v1/roles/PROMOTION_LEADER', { holder: 'gpu-1:4711', session: 'a', ttl: '1h' });
  await to('PUT', '/v1/resources/net:gpu-node-1', { capacity: 1000, unit: 'Mbit/s', preemptible: true });
  await to('PUT', '/v1/allocations/copy-1', { holder: 'gpu-1:4711', amounts: { 'net:gpu-node-1': 650 }, ttl: '1h' });
  await to('PUT', '/v1/views/by-key', { description: 'Events by key', types: ['*'], fields: { events: { kind: 'count' }, last: { kind: 'last', of: 'type' } } });
  await to('PUT', '/v1/scheduled/nightly', { at: '2099-01-01T02:00:00Z', event: { type: 'DATA_SYNC_STARTED', payload: { sync_id: 'nightly' } } });
  await to('POST', '/v1/events', { type: 'MODEL_DISTRIBUTION_COMPLETE', payload: { model_id: 'hex8_3p', host: 'gpu-5', source: 'nas-1', size_bytes: 1000 } });
  await to('PUT', '/v1/clients/gpu-3:99', { host: 'gpu-3', pid: 99, version: '0.1', ttl: '1h', subscriptions: [{ name: 'promote', filter: { types: ['TRAINING_COMPLETED'] }, mode: 'durable', cursor: 'trainer', critical: true, state: 'attached' }] });
  return results[0].offset;
}
