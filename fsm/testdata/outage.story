# Views of outages, from the journals of three voters.
> voters n1 n2 n3
> leads n1
  1 LEADER_ELECTED {"cause": "bootstrap", "leader_id": "n1", "term": 2}
> member n1 2
> member n2 2
> member n3 2
# n2 and n3 are killed at 1m0s, n2 runs again from 1m30s on, and leads from 1m31s. Only n1
# saw the outage; those that did not run prove it.
> wait 91s
> leads n2 restart
  2 LEADER_LOST {"cause": "restart", "led_ms": 0, "old_leader": "n1", "term": 2}
  3 LEADER_ELECTED {"cause": "restart", "leader_id": "n2", "leaderless_ms": 91000, "previous_leader": "n1", "term": 3}
> journals n1:lost:3:60s:92s n2:up:90s:60s n2:led:3:91s:93s
  4 QUORUM_LOST {"began_at": "2026-01-05T10:01:00Z", "cause": "unreachable", "down": ["n2"], "incident": 1, "last_leader": "n1", "quorum": 2, "refused": 3, "seen_by": ["n1"], "term": 2, "views": [{"began_at": "2026-01-05T10:01:00Z", "cause": "unreachable", "ended_at": "2026-01-05T10:01:32Z", "last_leader": "n1", "refused": 3, "term": 2, "voter_id": "n1"}], "voters": 3}
  5 QUORUM_RESTORED {"after": "lost", "began_at": "2026-01-05T10:01:00Z", "ended_at": "2026-01-05T10:01:31Z", "healthy": 3, "incident": 1, "leader_id": "n2", "outage_ms": 31000, "quorum": 2, "refused": 3, "term": 3, "voters": 3}
# n3 comes back later: it has nothing to add. Nothing is reported twice.
> journals n1:lost:3:60s:92s n2:up:90s:60s n3:up:5m:60s n2:led:3:91s:5m
# A minority of one was cut off while the two others went on.
> journals n3:lost:1:6m:8m n1:up:0s n2:up:90s:60s n2:led:3:91s:10m
  6 QUORUM_OUTAGE_VIEW {"began_at": "2026-01-05T10:06:00Z", "cause": "unreachable", "cluster_had_quorum": true, "ended_at": "2026-01-05T10:08:00Z", "last_leader": "n1", "outage_ms": 120000, "refused": 3, "term": 2, "voter_id": "n3"}
# A majority was cut off from each other, all three saw it; n3 was away for long and
# reports its view later, once.
> wait 12m2s
> leads n1 heartbeat_timeout 59s
  7 LEADER_HEARTBEAT_MISSING {"leader_id": "n2", "missing_ms": 59000, "seen_by": "n1", "term": 3}
  8 LEADER_LOST {"cause": "heartbeat_timeout", "led_ms": 663000, "old_leader": "n2", "term": 3}
  9 LEADER_ELECTED {"cause": "heartbeat_timeout", "leader_id": "n1", "leaderless_ms": 59000, "previous_leader": "n2", "term": 4}
> journals n1:lost:6:12m34s:13m34s n2:lost:4:12m35s:13m34s n1:up:0s n2:up:90s:60s n2:led:3:91s:12m35s n1:led:4:13m33s:14m
  10 QUORUM_LOST {"began_at": "2026-01-05T10:12:35Z", "cause": "unreachable", "incident": 2, "last_leader": "n1", "quorum": 2, "refused": 6, "seen_by": ["n1", "n2"], "term": 3, "views": [{"began_at": "2026-01-05T10:12:34Z", "cause": "unreachable", "ended_at": "2026-01-05T10:13:34Z", "last_leader": "n1", "refused": 3, "term": 3, "voter_id": "n1"}, {"began_at": "2026-01-05T10:12:35Z", "cause": "unreachable", "ended_at": "2026-01-05T10:13:34Z", "last_leader": "n1", "refused": 3, "term": 3, "voter_id": "n2"}], "voters": 3}
  11 QUORUM_RESTORED {"after": "lost", "began_at": "2026-01-05T10:12:35Z", "ended_at": "2026-01-05T10:13:33Z", "healthy": 3, "incident": 2, "leader_id": "n1", "outage_ms": 58000, "quorum": 2, "refused": 6, "term": 4, "voters": 3}
> journals n3:lost:5:12m36s:40h n1:led:4:13m33s:41h
  12 QUORUM_OUTAGE_VIEW {"began_at": "2026-01-05T10:12:36Z", "cause": "unreachable", "cluster_had_quorum": false, "ended_at": "2026-01-07T02:00:00Z", "incident": 2, "last_leader": "n1", "outage_ms": 143244000, "refused": 3, "term": 3, "voter_id": "n3"}
> journals n3:lost:5:12m36s:40h n1:led:4:13m33s:41h
# Two stood still, so that nothing could be decided: the third saw no majority.
> wait 41h46m27s
> online n2 0
> wait 40s
> leads n1 reelected
  13 LEADER_LOST {"cause": "reelected", "led_ms": 150387000, "old_leader": "n1", "term": 4}
  14 LEADER_ELECTED {"cause": "reelected", "leader_id": "n1", "leaderless_ms": 40000, "previous_leader": "n1", "term": 5}
> journals n1:lost:9:42h:42h40s n2:stalled:7:42h1s:42h30s n3:stalled:9:42h1s:42h31s n1:led:4:13m33s:42h2s n1:led:5:42h39s:42h41s
  15 QUORUM_LOST {"began_at": "2026-01-07T04:00:02Z", "cause": "unreachable", "incident": 3, "last_leader": "n1", "quorum": 2, "refused": 3, "seen_by": ["n1"], "term": 4, "views": [{"began_at": "2026-01-07T04:00:00Z", "cause": "unreachable", "ended_at": "2026-01-07T04:00:40Z", "last_leader": "n1", "refused": 3, "term": 4, "voter_id": "n1"}], "voters": 3}
  16 QUORUM_RESTORED {"after": "lost", "began_at": "2026-01-07T04:00:02Z", "ended_at": "2026-01-07T04:00:39Z", "healthy": 3, "incident": 3, "leader_id": "n1", "outage_ms": 37000, "quorum": 2, "refused": 3, "term": 5, "voters": 3}
# Two outages, handed in at once: a leader between them led for two seconds. One that
# committed nothing, or led for less than a second, ends no outage.
> wait 1h
> leads n2 heartbeat_timeout 9s
  17 LEADER_HEARTBEAT_MISSING {"leader_id": "n1", "missing_ms": 9000, "seen_by": "n2", "term": 5}
  18 LEADER_LOST {"cause": "heartbeat_timeout", "led_ms": 3591000, "old_leader": "n1", "term": 5}
  19 LEADER_ELECTED {"cause": "heartbeat_timeout", "leader_id": "n2", "leaderless_ms": 9000, "previous_leader": "n1", "term": 6}
> wait 2s
> online n1 0
> wait 6200ms
> leads n1
  20 LEADER_LOST {"cause": "unknown", "led_ms": 2000, "old_leader": "n2", "term": 6}
  21 LEADER_ELECTED {"cause": "unknown", "leader_id": "n1", "leaderless_ms": 6200, "previous_leader": "n2", "term": 7}
> wait 4800ms
> leads n3 heartbeat_timeout 11s
  22 LEADER_HEARTBEAT_MISSING {"leader_id": "n1", "missing_ms": 4800, "seen_by": "n3", "term": 7}
  23 LEADER_LOST {"cause": "heartbeat_timeout", "led_ms": 0, "old_leader": "n1", "term": 7}
  24 LEADER_ELECTED {"cause": "heartbeat_timeout", "leader_id": "n3", "leaderless_ms": 4800, "previous_leader": "n1", "term": 8}
> journals n1:lost:11:43h30s:43h40s n1:lost:13:43h43s:43h54s n2:lost:9:43h31s:43h40s n2:lost:11:43h43s:43h54s n2:led:6:43h39s:43h43s n1:led:7:43h48.2s:43h49s n3:led:8:43h53s:43h54s
  25 QUORUM_LOST {"began_at": "2026-01-07T05:00:31Z", "cause": "unreachable", "incident": 4, "last_leader": "n1", "quorum": 2, "refused": 6, "seen_by": ["n1", "n2"], "term": 7, "views": [{"began_at": "2026-01-07T05:00:30Z", "cause": "unreachable", "ended_at": "2026-01-07T05:00:40Z", "last_leader": "n1", "refused": 3, "term": 7, "voter_id": "n1"}, {"began_at": "2026-01-07T05:00:31Z", "cause": "unreachable", "ended_at": "2026-01-07T05:00:40Z", "last_leader": "n1", "refused": 3, "term": 7, "voter_id": "n2"}], "voters": 3}
  26 QUORUM_RESTORED {"after": "lost", "began_at": "2026-01-07T05:00:31Z", "ended_at": "2026-01-07T05:00:39Z", "healthy": 3, "incident": 4, "leader_id": "n3", "outage_ms": 8000, "quorum": 2, "refused": 6, "term": 8, "voters": 3}
  27 QUORUM_LOST {"began_at": "2026-01-07T05:00:43Z", "cause": "unreachable", "incident": 5, "last_leader": "n1", "quorum": 2, "refused": 6, "seen_by": ["n1", "n2"], "term": 7, "views": [{"began_at": "2026-01-07T05:00:43Z", "cause": "unreachable", "ended_at": "2026-01-07T05:00:54Z", "last_leader": "n1", "refused": 3, "term": 7, "voter_id": "n1"}, {"began_at": "2026-01-07T05:00:43Z", "cause": "unreachable", "ended_at": "2026-01-07T05:00:54Z", "last_leader": "n1", "refused": 3, "term": 7, "voter_id": "n2"}], "voters": 3}
  28 QUORUM_RESTORED {"after": "lost", "began_at": "2026-01-07T05:00:43Z", "ended_at": "2026-01-07T05:00:53Z", "healthy": 3, "incident": 5, "leader_id": "n3", "outage_ms": 10000, "quorum": 2, "refused": 6, "term": 8, "voters": 3}
# A slow election is no outage as long as a majority sees itself.
> wait 1h
> leads n2 heartbeat_timeout 4s
  29 LEADER_HEARTBEAT_MISSING {"leader_id": "n3", "missing_ms": 4000, "seen_by": "n2", "term": 8}
  30 LEADER_LOST {"cause": "heartbeat_timeout", "led_ms": 3596000, "old_leader": "n3", "term": 8}
  31 LEADER_ELECTED {"cause": "heartbeat_timeout", "leader_id": "n2", "leaderless_ms": 4000, "previous_leader": "n3", "term": 9}
> journals n1:lost:15:44h40s:44h9m n3:led:8:43h53s:44h50s n2:led:9:44h53s:44h9m
  32 QUORUM_OUTAGE_VIEW {"began_at": "2026-01-07T06:00:40Z", "cause": "unreachable", "cluster_had_quorum": true, "ended_at": "2026-01-07T06:09:00Z", "last_leader": "n1", "outage_ms": 500000, "refused": 3, "term": 8, "voter_id": "n1"}
# A view that came before the proof: the word that n2 did not run is the last one missing.
> wait 2h
> leads n2 restart
  33 LEADER_LOST {"cause": "restart", "led_ms": 0, "old_leader": "n2", "term": 9}
  34 LEADER_ELECTED {"cause": "restart", "leader_id": "n2", "leaderless_ms": 7200000, "previous_leader": "n2", "term": 10}
> journals n1:lost:19:46h20s:46h55s n2:led:9:44h53s:46h19s n2:led:10:46h54s:46h56s
  35 QUORUM_OUTAGE_VIEW {"began_at": "2026-01-07T08:00:20Z", "cause": "unreachable", "cluster_had_quorum": true, "ended_at": "2026-01-07T08:00:55Z", "last_leader": "n1", "outage_ms": 35000, "refused": 3, "term": 9, "voter_id": "n1"}
> journals n2:up:46h50s:46h21s n2:led:10:46h54s:46h58s
  36 QUORUM_LOST {"began_at": "2026-01-07T08:00:21Z", "cause": "unreachable", "down": ["n2"], "incident": 6, "last_leader": "n1", "quorum": 2, "refused": 3, "seen_by": ["n1"], "term": 9, "views": [{"began_at": "2026-01-07T08:00:20Z", "cause": "unreachable", "ended_at": "2026-01-07T08:00:55Z", "last_leader": "n1", "refused": 3, "term": 9, "voter_id": "n1"}], "voters": 3}
  37 QUORUM_RESTORED {"after": "lost", "began_at": "2026-01-07T08:00:21Z", "ended_at": "2026-01-07T08:00:54Z", "healthy": 3, "incident": 6, "leader_id": "n2", "outage_ms": 33000, "quorum": 2, "refused": 3, "term": 10, "voters": 3}
# The leader's own word on the end of its lease says when the next outage began, though
# the others followed it for longer.
> wait 10m
> leads n3 heartbeat_timeout 16s
  38 LEADER_HEARTBEAT_MISSING {"leader_id": "n2", "missing_ms": 16000, "seen_by": "n3", "term": 10}
  39 LEADER_LOST {"cause": "heartbeat_timeout", "led_ms": 584000, "old_leader": "n2", "term": 10}
  40 LEADER_ELECTED {"cause": "heartbeat_timeout", "leader_id": "n3", "leaderless_ms": 16000, "previous_leader": "n2", "term": 11}
> journals n1:lost:21:46h10m34s:46h10m55s n2:lost:13:46h10m34s:46h10m55s n2:lease_expired:14:46h10m34s:46h10m35s n2:led:10:46h54s:46h10m38s n3:led:11:46h10m54s:46h10m56s
  41 LEADER_LEASE_EXPIRED {"expired_at": "2026-01-07T08:10:35Z", "leader_id": "n2", "quorum_contact_ms": 1000, "term": 10}
  42 QUORUM_LOST {"began_at": "2026-01-07T08:10:35Z", "cause": "unreachable", "incident": 7, "last_leader": "n1", "quorum": 2, "refused": 6, "seen_by": ["n1", "n2"], "term": 10, "views": [{"began_at": "2026-01-07T08:10:34Z", "cause": "unreachable", "ended_at": "2026-01-07T08:10:55Z", "last_leader": "n1", "refused": 3, "term": 10, "voter_id": "n1"}, {"began_at": "2026-01-07T08:10:34Z", "cause": "unreachable", "ended_at": "2026-01-07T08:10:55Z", "last_leader": "n1", "refused": 3, "term": 10, "voter_id": "n2"}], "voters": 3}
  43 QUORUM_RESTORED {"after": "lost", "began_at": "2026-01-07T08:10:35Z", "ended_at": "2026-01-07T08:10:54Z", "healthy": 3, "incident": 7, "leader_id": "n3", "outage_ms": 19000, "quorum": 2, "refused": 6, "term": 11, "voters": 3}
