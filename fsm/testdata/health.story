# Three voters of the newest build. What is told of them comes from the newest feature
# level on, and not for those who formed the cluster.
> voters n1 n2 n3
> leads n1
  1 LEADER_ELECTED {"cause": "bootstrap", "leader_id": "n1", "term": 2}
> offline n2 1500 http
> member n1 2
> member n2 2
> member n3 2
# A voter goes and comes back: no failure is left to spare meanwhile. The word that
# nothing has changed, or of somebody without a vote, tells nothing.
> wait 10s
> offline n2 1600 http
  2 VOTER_OFFLINE {"active_voters": 2, "last_contact_ms": 1600, "reason": "http", "voter_id": "n2", "voters": 3}
  3 QUORUM_AT_RISK {"cause": "voter_offline", "healthy": 2, "limiting": ["n2"], "quorum": 2, "voters": 3}
  4 QUORUM_PRIORITY_RECONNECT {"reason": "no_failure_to_spare", "voters": ["n2"]}
> offline n2 1700 http
> offline n9 1700 http
> wait 6s
> online n2 12
  5 VOTER_ONLINE {"active_voters": 3, "last_contact_ms": 12, "voter_id": "n2", "voters": 3}
  6 QUORUM_RESTORED {"after": "at_risk", "at_risk_ms": 6000, "healthy": 3, "outage_ms": 0, "quorum": 2, "voters": 3}
# It flaps: within the hold-down of 5s nothing is told.
> wait 1s
> offline n2 1500 http
> wait 1s
> online n2 10
> wait 1s
> offline n2 1500 http
> wait 3s
> offline n2 1500 http
  7 VOTER_OFFLINE {"active_voters": 2, "last_contact_ms": 1500, "reason": "http", "voter_id": "n2", "voters": 3}
  8 QUORUM_AT_RISK {"cause": "voter_offline", "healthy": 2, "limiting": ["n2"], "quorum": 2, "voters": 3}
  9 QUORUM_PRIORITY_RECONNECT {"reason": "no_failure_to_spare", "voters": ["n2"]}
> wait 5s
> online n2 3
  10 VOTER_ONLINE {"active_voters": 3, "last_contact_ms": 3, "voter_id": "n2", "voters": 3}
  11 QUORUM_RESTORED {"after": "at_risk", "at_risk_ms": 5000, "healthy": 3, "outage_ms": 0, "quorum": 2, "voters": 3}
# The leader falls silent. Who follows knows since when better than the log, in which
# nothing was written for long.
> wait 30s
> leads n2 heartbeat_timeout 1200ms
  12 LEADER_HEARTBEAT_MISSING {"leader_id": "n1", "missing_ms": 1200, "seen_by": "n2", "term": 2}
  13 LEADER_LOST {"cause": "heartbeat_timeout", "led_ms": 55800, "old_leader": "n1", "term": 2}
  14 LEADER_ELECTED {"cause": "heartbeat_timeout", "leader_id": "n2", "leaderless_ms": 1200, "previous_leader": "n1", "term": 3}
# Its lease had run out, as its journal tells later, once.
> journals n1:lease_expired:1:66s:66500ms
  15 LEADER_LEASE_EXPIRED {"expired_at": "2026-01-05T10:01:06.5Z", "leader_id": "n1", "quorum_contact_ms": 500, "term": 2}
> journals n1:lease_expired:1:66s:66500ms
# Members come, get a vote and lose it, for a reason.
> vote n4 join
> voters n1 n2 n3 -n4
> voters n1 n2 n3 n4
  16 VOTER_PROMOTED {"active_voters": 4, "reason": "join", "voter_id": "n4", "voters": 4}
> novote n4 operator
> voters n1 n2 n3 -n4
  17 VOTER_DEMOTED {"active_voters": 3, "reason": "operator", "voter_id": "n4", "voters": 3}
> vote n4 stable
> voters n1 n2 n3 n4
  18 VOTER_PROMOTED {"active_voters": 4, "reason": "stable", "voter_id": "n4", "voters": 4}
> novote n4 dead_server
> voters n1 n2 n3
  19 VOTER_DEMOTED {"active_voters": 3, "reason": "dead_server", "voter_id": "n4", "voters": 3}
# One falls behind what the raft log keeps, and recovers.
> trails n3 3000
  20 CATCHUP_AT_RISK {"entries_left": 100, "log_rate": 30, "member_id": "n3", "member_rate": 5, "trailing_entries": 3000, "truncated_in_ms": 4000}
> trails n3 4000
> trails n3 0
> trails n3 3000
  21 CATCHUP_AT_RISK {"entries_left": 100, "log_rate": 30, "member_id": "n3", "member_rate": 5, "trailing_entries": 3000, "truncated_in_ms": 4000}
# Two claim to lead.
> claims n2 n1
  22 SPLIT_BRAIN_DETECTED {"leaders": ["n1", "n2"], "term": 3}
> claims n2 n1
> wait 1s
> leads n3 heartbeat_timeout 900ms
  23 LEADER_HEARTBEAT_MISSING {"leader_id": "n2", "missing_ms": 900, "seen_by": "n3", "term": 3}
  24 LEADER_LOST {"cause": "heartbeat_timeout", "led_ms": 100, "old_leader": "n2", "term": 3}
  25 LEADER_ELECTED {"cause": "heartbeat_timeout", "leader_id": "n3", "leaderless_ms": 900, "previous_leader": "n2", "term": 4}
  26 SPLIT_BRAIN_RESOLVED {"lasted_ms": 1000, "leader_id": "n3", "leaders": ["n1", "n2"], "new_term": 4, "term": 3}
# The whole cluster was down for a minute. By replicated time it was down for a second, so
# the first term start moves it before it speaks.
> wait 1s
> leads n1 restart 0s 60s
  27 LEADER_LOST {"cause": "restart", "led_ms": 0, "old_leader": "n3", "term": 4}
  28 LEADER_ELECTED {"cause": "restart", "leader_id": "n1", "leaderless_ms": 61000, "previous_leader": "n3", "term": 5}
> wait 62s
> leads n2
  29 LEADER_LOST {"cause": "unknown", "led_ms": 0, "old_leader": "n1", "term": 5}
  30 LEADER_ELECTED {"cause": "unknown", "leader_id": "n2", "leaderless_ms": 2000, "previous_leader": "n1", "term": 6}
# A step without a term start: nobody led for the time that is left out.
> step 10s
> wait 11s
> leads n3
  31 LEADER_LOST {"cause": "unknown", "led_ms": 0, "old_leader": "n2", "term": 6}
  32 LEADER_ELECTED {"cause": "unknown", "leader_id": "n3", "leaderless_ms": 1000, "previous_leader": "n2", "term": 7}
# A setting of the newest level.
> set health.hold_down 1m
  1m
