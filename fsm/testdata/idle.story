# What waits for somebody to come back does not count time that a clock step left out: nobody
# could come back in it.
> leads n1
  1 LEADER_ELECTED {"cause": "bootstrap", "leader_id": "n1", "term": 2}
> member n1 4
> set cursor.idle_expiry 24h
  24h
> set cursor.stall_after 0s
  0s
> set dlq.max_age 24h
  24h
> set dlq.stale_after 12h
  12h
> set retention.age 0
  0
> publish 1 2
  at 2 3
  2 TRAINING_COMPLETED {"n": 1}
  3 TRAINING_COMPLETED {"n": 2}
> create idle 0
  committed 0 generation 0 gap 0-0
> open idle
  committed 0 generation 1 gap 0-0
> create busy 0
  committed 0 generation 0 gap 0-0
> open busy
  committed 0 generation 1 gap 0-0
> dead idle 2 1 boom
  letter 1 of "idle" at 2, 3 attempts, 0 redrives, copy 0 committed 2 generation 1 gap 0-0
> due
  1m0s
> wait 1h
> tick
# The cluster is off for two days, then its first leader steps replicated time.
> leads n2 timeout 48h 48h
  4 LEADER_LOST {"cause": "timeout", "led_ms": 3600000, "old_leader": "n1", "term": 2}
  5 LEADER_ELECTED {"cause": "timeout", "leader_id": "n2", "leaderless_ms": 172800000, "previous_leader": "n1", "term": 3}
> wait 48h
> letters
  1 dead idle at 2: "boom", 3 attempts, died at 0s, lineage [2]
  1 letters, 0 redriven
> due
  49h1m0s
> wait 22h
> commit busy 1 1
  committed 1 generation 1 gap 0-0
  6 DLQ_STALE_EVENTS {"count": 1, "dead": 1, "oldest_at": "2026-01-05T10:00:00Z", "stale_after_s": 43200, "under_way": 0}
> tick
> letters
  1 dead idle at 2: "boom", 3 attempts, died at 0s, lineage [2]
  1 letters, 0 redriven
> due
  71h1m0s
> wait 1h
> tick
  7 DLQ_EVENTS_PURGED {"count": 1, "cursors": {"idle": 1}, "dead": 0, "reason": "max_age", "under_way": 0}
> open idle
  not_found: there is no cursor "idle"
> open busy
  committed 1 generation 2 gap 0-0
> letters
  0 letters, 0 redriven
# A backup that is restored a week later loses neither what was used before the step nor
# what died before it.
> dead busy 3 2 boom
  letter 2 of "busy" at 3, 3 attempts, 0 redrives, copy 0 committed 3 generation 2 gap 0-0
> wait 23h
> step 168h
  8 DLQ_STALE_EVENTS {"count": 1, "dead": 1, "oldest_at": "2026-01-08T10:00:00Z", "stale_after_s": 43200, "under_way": 0}
> wait 168h
> tick
> due
  263h1m0s
> wait 1h
> tick
  9 DLQ_EVENTS_PURGED {"count": 1, "cursors": {"busy": 1}, "dead": 0, "reason": "max_age", "under_way": 0}
> open busy
  not_found: there is no cursor "busy"
> letters
  0 letters, 0 redriven
