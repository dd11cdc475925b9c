// The shapes of answers that the console reads, as /openapi.json declares them.

export interface StoredEvent {
  offset: number;
  type: string;
  value?: string;
  payload: unknown;
  source?: string;
  key?: string;
  correlation_id?: string;
  causation_id?: string;
  dedup_id?: string;
  time?: string;
  appended_at: string;
  term: number;
  hash?: string;
  original_type?: string;
  foreign?: boolean;
  target?: string;
  redrive?: number;
  traceparent?: string;
}

export interface Filter {
  types?: string[];
  categories?: string[];
  sources?: string[];
  keys?: string[];
  correlation_ids?: string[];
}

export interface Gap {
  from: number;
  to: number;
  reason: string;
}

export interface Cursor {
  name: string;
  filter?: Filter;
  committed: number;
  scanned?: number; // nothing up to it is open
  generation: number;
  created: string;
  touched: string;
  seeks: number;
  gap?: Gap;
  lag_events?: number;
  lag_seconds?: number;
  lag_at_least?: number;
  backpressure?: { activate_at: number; release_at: number; since?: string };
  stalled?: { since: string };
  group?: {
    ack_wait: string;
    max_deliver: number;
    max_pending: number;
    pending?: number;
    redelivering?: number;
    members?: number;
    coordinator?: string;
  };
}

export interface Member {
  id: string;
  raft: string;
  http: string;
  voter: boolean;
  healthy: boolean;
  unreachable?: string;
  last_contact_ms?: number;
  trailing_entries?: number;
  stalled_ms?: number;
  other_token?: boolean;
  other_folder?: boolean;
  other_cluster?: boolean;
  disk?: { free_bytes: number; min_free_bytes: number; full: boolean };
  version?: string;
  feature_level?: number;
}

export interface Quorum {
  voters: number;
  needed: number;
  healthy: number;
  margin: number;
}

export interface Outage {
  since: string;
  cause: string;
  term: number;
  last_leader: string;
  refused: number;
  peers?: { id: string; reachable: boolean; last_contact_ms?: number }[] | null;
}

export interface PastOutage {
  incident: number;
  began_at: string;
  ended_at: string;
  seconds: number;
  seen_by: string[];
}

export interface Chapter {
  offset: number;
  at: string;
  appended_at: string;
  type: string;
  term: number;
  subject?: string;
  gap_seconds?: number;
  payload: Record<string, unknown>;
}

export interface LetterStats {
  count: number;
  redriven: number;
  bytes: number;
  max_bytes: number;
  oldest?: string;
  ever: number;
  stale?: boolean;
}

export interface Subscription {
  filter?: Filter;
  mode?: string;
  state?: string;
  critical?: boolean;
  cursor?: string;
}

export interface Status {
  node_id: string;
  cluster_id: string;
  role: string;
  leader_id?: string;
  leader_http?: string;
  term: number;
  first_offset: number;
  last_offset: number;
  applied_index: number;
  commit_index: number;
  members: Member[];
  quorum: Quorum;
  health?: { voters: { id: string; online: boolean; since?: string; reason?: string }[]; quorum_at_risk: boolean };
  outage?: Outage;
  warnings?: string[];
  diverged: boolean;
  disk_full: boolean;
  feature_level: number;
  clock: string; // of the node's machine; time is replicated, and stands still while nothing happens
  time: string;
  version: string;
  uptime_seconds: number;
  join_refused?: string;
  not_formed?: string;
  tls?: { mode: string; expires: string; problem?: string };
  waiting_requests: number;
  queue: { requests: number; bytes: number; max_requests: number; max_bytes: number; refused: number };
  backpressure: { active: boolean; since?: string };
  overdue_chains: {
    count: number;
    list: { correlation_id: string; flow: string; missing: string; waiting_seconds: number; deadline_seconds: number }[];
  };
  cursors: Cursor[];
  cursors_total: number;
  dead_letters: LetterStats;
  log: { log_bytes: number; accepted: number; suppressed: number; refused: number };
  event_subscription_status: {
    clients: number;
    subscriptions: number;
    critical_detached: number;
    critical_unheard: number;
    lost: number;
    healthy: boolean;
    unheard: { name: string; client: string; host?: string; since: string }[];
  };
  handler_timeouts: {
    timed_out: number;
    handlers: { client: string; subscription: string; timed_out: number; breaker?: string; last_error?: string }[];
  };
}

export interface Letter {
  id: number;
  state: string;
  cursor?: string;
  offset?: number;
  copy?: number;
  type: string;
  key?: string;
  source?: string;
  correlation_id?: string;
  handler?: string;
  error?: string;
  attempts: number;
  first_failed?: string;
  last_failed?: string;
  dead_lettered_at: string;
  redrives?: number;
  lineage?: number[];
  origin?: string;
  bytes: number;
  event?: StoredEvent;
}

export interface LettersResult {
  matched: number;
  done: number;
  skipped: number;
  no_cursor?: number[];
  left: number;
  last?: number;
  more?: boolean;
}

export interface Setting {
  key: string;
  value: string;
  default: string;
  doc: string;
}
