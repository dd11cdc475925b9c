# Two outages and a leader for 700 ms between them: everybody alone, then a majority killed.
# Events were appended in between, so there were two, though n1 saw no end of the first.
> voters n1 n2 n3
> leads n1
  1 LEADER_ELECTED {"cause": "bootstrap", "leader_id": "n1", "term": 2}
> member n3 3
> member n1 4
> member n2 4
# While a member does not know that, all decide as it does: one outage.
> wait 36300ms
> leads n2 heartbeat_timeout 6300ms
  2 LEADER_HEARTBEAT_MISSING {"leader_id": "n1", "missing_ms": 6300, "seen_by": "n2", "term": 2}
  3 LEADER_LOST {"cause": "heartbeat_timeout", "led_ms": 30000, "old_leader": "n1", "term": 2}
  4 LEADER_ELECTED {"cause": "heartbeat_timeout", "leader_id": "n2", "leaderless_ms": 6300, "previous_leader": "n1", "term": 3}
> publish 1 2
  at 5 6
  5 TRAINING_COMPLETED {"n": 1}
  6 TRAINING_COMPLETED {"n": 2}
> wait 700ms
> publish 3
  at 7
  7 TRAINING_COMPLETED {"n": 3}
> wait 5s
> leads n1 heartbeat_timeout 5s
  8 LEADER_HEARTBEAT_MISSING {"leader_id": "n2", "missing_ms": 5000, "seen_by": "n1", "term": 3}
  9 LEADER_LOST {"cause": "heartbeat_timeout", "led_ms": 700, "old_leader": "n2", "term": 3}
  10 LEADER_ELECTED {"cause": "heartbeat_timeout", "leader_id": "n1", "leaderless_ms": 5000, "previous_leader": "n2", "term": 4}
> journals n1:lost:2:30s:43s n2:lost:2:30s:43s n2:led:3:36.3s:37s n1:led:4:42s:44s
  11 QUORUM_LOST {"began_at": "2026-01-05T10:00:30Z", "cause": "unreachable", "incident": 1, "last_leader": "n1", "quorum": 2, "refused": 6, "seen_by": ["n1", "n2"], "term": 3, "views": [{"began_at": "2026-01-05T10:00:30Z", "cause": "unreachable", "ended_at": "2026-01-05T10:00:43Z", "last_leader": "n1", "refused": 3, "term": 3, "voter_id": "n1"}, {"began_at": "2026-01-05T10:00:30Z", "cause": "unreachable", "ended_at": "2026-01-05T10:00:43Z", "last_leader": "n1", "refused": 3, "term": 3, "voter_id": "n2"}], "voters": 3}
  12 QUORUM_RESTORED {"after": "lost", "began_at": "2026-01-05T10:00:30Z", "ended_at": "2026-01-05T10:00:42Z", "healthy": 3, "incident": 1, "leader_id": "n1", "outage_ms": 12000, "quorum": 2, "refused": 6, "term": 4, "voters": 3}
> member n3 4
> wait 34300ms
> leads n2 heartbeat_timeout 6300ms
  13 LEADER_HEARTBEAT_MISSING {"leader_id": "n1", "missing_ms": 6300, "seen_by": "n2", "term": 4}
  14 LEADER_LOST {"cause": "heartbeat_timeout", "led_ms": 28000, "old_leader": "n1", "term": 4}
  15 LEADER_ELECTED {"cause": "heartbeat_timeout", "leader_id": "n2", "leaderless_ms": 6300, "previous_leader": "n1", "term": 5}
> publish 4 5
  at 16 17
  16 TRAINING_COMPLETED {"n": 4}
  17 TRAINING_COMPLETED {"n": 5}
> wait 700ms
> publish 6
  at 18
  18 TRAINING_COMPLETED {"n": 6}
> wait 5s
> leads n1 heartbeat_timeout 5s
  19 LEADER_HEARTBEAT_MISSING {"leader_id": "n2", "missing_ms": 5000, "seen_by": "n1", "term": 5}
  20 LEADER_LOST {"cause": "heartbeat_timeout", "led_ms": 700, "old_leader": "n2", "term": 5}
  21 LEADER_ELECTED {"cause": "heartbeat_timeout", "leader_id": "n1", "leaderless_ms": 5000, "previous_leader": "n2", "term": 6}
> restart
> journals n1:lost:4:70s:83s n2:lost:4:70s:83s n2:down:5:77s:81s n3:lost:4:70s:83s n3:down:5:77s:81s n2:led:5:76.3s:77s n1:led:6:82s:84s
  22 QUORUM_LOST {"began_at": "2026-01-05T10:01:10Z", "cause": "unreachable", "incident": 2, "last_leader": "n1", "quorum": 2, "refused": 9, "seen_by": ["n1", "n2", "n3"], "term": 5, "views": [{"began_at": "2026-01-05T10:01:10Z", "cause": "unreachable", "ended_at": "2026-01-05T10:01:23Z", "last_leader": "n1", "refused": 3, "term": 5, "voter_id": "n1"}, {"began_at": "2026-01-05T10:01:10Z", "cause": "unreachable", "ended_at": "2026-01-05T10:01:23Z", "last_leader": "n1", "refused": 3, "term": 5, "voter_id": "n2"}, {"began_at": "2026-01-05T10:01:10Z", "cause": "unreachable", "ended_at": "2026-01-05T10:01:23Z", "last_leader": "n1", "refused": 3, "term": 5, "voter_id": "n3"}], "voters": 3}
  23 QUORUM_RESTORED {"after": "lost", "began_at": "2026-01-05T10:01:10Z", "ended_at": "2026-01-05T10:01:16.3Z", "healthy": 3, "incident": 2, "leader_id": "n1", "outage_ms": 6300, "quorum": 2, "refused": 9, "term": 6, "voters": 3}
  24 QUORUM_LOST {"began_at": "2026-01-05T10:01:17Z", "cause": "unreachable", "incident": 3, "last_leader": "n1", "quorum": 2, "refused": 9, "seen_by": ["n1", "n2", "n3"], "term": 5, "views": [{"began_at": "2026-01-05T10:01:10Z", "cause": "unreachable", "ended_at": "2026-01-05T10:01:23Z", "last_leader": "n1", "refused": 3, "term": 5, "voter_id": "n1"}, {"began_at": "2026-01-05T10:01:10Z", "cause": "unreachable", "ended_at": "2026-01-05T10:01:23Z", "last_leader": "n1", "refused": 3, "term": 5, "voter_id": "n2"}, {"began_at": "2026-01-05T10:01:10Z", "cause": "unreachable", "ended_at": "2026-01-05T10:01:23Z", "last_leader": "n1", "refused": 3, "term": 5, "voter_id": "n3"}], "voters": 3}
  25 QUORUM_RESTORED {"after": "lost", "began_at": "2026-01-05T10:01:17Z", "ended_at": "2026-01-05T10:01:22Z", "healthy": 3, "incident": 3, "leader_id": "n1", "outage_ms": 5000, "quorum": 2, "refused": 9, "term": 6, "voters": 3}
# The same without an event in between: the leader may have had nobody, and it is one outage.
> wait 34300ms
> leads n2 heartbeat_timeout 6300ms
  26 LEADER_HEARTBEAT_MISSING {"leader_id": "n1", "missing_ms": 6300, "seen_by": "n2", "term": 6}
  27 LEADER_LOST {"cause": "heartbeat_timeout", "led_ms": 28000, "old_leader": "n1", "term": 6}
  28 LEADER_ELECTED {"cause": "heartbeat_timeout", "leader_id": "n2", "leaderless_ms": 6300, "previous_leader": "n1", "term": 7}
> wait 5700ms
> leads n1 heartbeat_timeout 5s
  29 LEADER_HEARTBEAT_MISSING {"leader_id": "n2", "missing_ms": 5000, "seen_by": "n1", "term": 7}
  30 LEADER_LOST {"cause": "heartbeat_timeout", "led_ms": 700, "old_leader": "n2", "term": 7}
  31 LEADER_ELECTED {"cause": "heartbeat_timeout", "leader_id": "n1", "leaderless_ms": 5000, "previous_leader": "n2", "term": 8}
> journals n1:lost:6:110s:123s n2:lost:6:110s:123s n2:led:7:116.3s:117s n1:led:8:122s:124s
  32 QUORUM_LOST {"began_at": "2026-01-05T10:01:50Z", "cause": "unreachable", "incident": 4, "last_leader": "n1", "quorum": 2, "refused": 6, "seen_by": ["n1", "n2"], "term": 7, "views": [{"began_at": "2026-01-05T10:01:50Z", "cause": "unreachable", "ended_at": "2026-01-05T10:02:03Z", "last_leader": "n1", "refused": 3, "term": 7, "voter_id": "n1"}, {"began_at": "2026-01-05T10:01:50Z", "cause": "unreachable", "ended_at": "2026-01-05T10:02:03Z", "last_leader": "n1", "refused": 3, "term": 7, "voter_id": "n2"}], "voters": 3}
  33 QUORUM_RESTORED {"after": "lost", "began_at": "2026-01-05T10:01:50Z", "ended_at": "2026-01-05T10:02:02Z", "healthy": 3, "incident": 4, "leader_id": "n1", "outage_ms": 12000, "quorum": 2, "refused": 6, "term": 8, "voters": 3}
