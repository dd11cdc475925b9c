# Below the newest feature level nothing is reported of cursors that do not move.
> voters n1
> leads n1
  1 LEADER_ELECTED {"cause": "bootstrap", "leader_id": "n1", "term": 2}
> create old 0
  committed 0 generation 0 gap 0-0
> publish 1
  at 2
  2 TRAINING_COMPLETED {"n": 1}
> wait 10m
> tick
# From it on, one that has stood for the time of the setting, with an event open for as
# long: one that was made before counts from its last use.
> member n1 4
  3 CURSOR_STALLED {"committed": 0, "cursor": "old", "group": false, "lag_events": 2, "lag_seconds": 600, "moved_at": "2026-01-05T10:00:00Z", "stall_after_s": 300}
> create reader 0
  committed 0 generation 0 gap 0-0
> open reader
  committed 0 generation 1 gap 0-0
> publish 2
  at 4
  4 TRAINING_COMPLETED {"n": 2}
> due
  11m0s
> wait 5m
> tick
  5 CURSOR_STALLED {"committed": 0, "cursor": "reader", "group": false, "lag_events": 4, "lag_seconds": 900, "moved_at": "2026-01-05T10:10:00Z", "stall_after_s": 300}
# It is reported once.
> wait 10m
> tick
# Moving is not enough while what is open is old. To be at the end, or nearly, is.
> commit reader 1 1
  committed 1 generation 1 gap 0-0
> due
  30m0s
> publish 3
  at 6
  6 TRAINING_COMPLETED {"n": 3}
> commit reader 6 1
  committed 6 generation 1 gap 0-0
  7 CURSOR_RECOVERED {"committed": 6, "cursor": "reader", "group": false, "lag_events": 0, "lag_seconds": 0, "stalled_ms": 600000}
# It stands again, and counts from its last commit: what moves is slow, not stalled.
> publish 4 5
  at 8 9
  8 TRAINING_COMPLETED {"n": 4}
  9 TRAINING_COMPLETED {"n": 5}
> wait 4m
> commit reader 7 1
  committed 7 generation 1 gap 0-0
> wait 4m
> tick
> commit reader 7 1
  committed 7 generation 1 gap 0-0
> wait 1m
> tick
  10 CURSOR_STALLED {"committed": 7, "cursor": "reader", "group": false, "lag_events": 2, "lag_seconds": 540, "moved_at": "2026-01-05T10:29:00Z", "stall_after_s": 300}
# A seek wakes it, too: all that is open is young. One that is removed emits nothing.
> seek reader 10
  committed 9 generation 1 gap 0-0
  11 CURSOR_RECOVERED {"committed": 9, "cursor": "reader", "group": false, "lag_events": 1, "lag_seconds": 0, "stalled_ms": 0}
> remove old
  committed 0 generation 0 gap 0-0
> wait 10m
> tick
  12 CURSOR_STALLED {"committed": 9, "cursor": "reader", "group": false, "lag_events": 2, "lag_seconds": 600, "moved_at": "2026-01-05T10:34:00Z", "stall_after_s": 300}
> seek reader 13
  committed 12 generation 1 gap 0-0
  13 CURSOR_RECOVERED {"committed": 12, "cursor": "reader", "group": false, "lag_events": 0, "lag_seconds": 0, "stalled_ms": 0}
# What reports it is an event like any other: whoever reads the log lags by one.
> wait 1h
> tick
  14 CURSOR_STALLED {"committed": 12, "cursor": "reader", "group": false, "lag_events": 1, "lag_seconds": 3600, "moved_at": "2026-01-05T10:44:00Z", "stall_after_s": 300}
> commit reader 13 1
  committed 13 generation 1 gap 0-0
  15 CURSOR_RECOVERED {"committed": 13, "cursor": "reader", "group": false, "lag_events": 1, "lag_seconds": 0, "stalled_ms": 0}
> wait 1h
> tick
  16 CURSOR_STALLED {"committed": 13, "cursor": "reader", "group": false, "lag_events": 2, "lag_seconds": 3600, "moved_at": "2026-01-05T11:44:00Z", "stall_after_s": 300}
> publish 6
  at 17
  17 TRAINING_COMPLETED {"n": 6}
> wait 299s
> tick
> set cursor.stall_after 0s
  0s
> wait 1s
> tick
# With 0 no cursor is reported as stalled; one that is stalled recovers when it moves.
> wait 1h
> tick
> commit reader 14 1
  committed 14 generation 1 gap 0-0
  18 CURSOR_RECOVERED {"committed": 14, "cursor": "reader", "group": false, "lag_events": 3, "lag_seconds": 7500, "stalled_ms": 3900000}
> due
  3h50m0s
# A group stands still while its first open event is not settled.
> set cursor.stall_after 1m
  1m
> seek reader 17
  committed 16 generation 1 gap 0-0
> commit reader 16 1
  committed 16 generation 1 gap 0-0
> group crew
  committed 0 generation 1 gap 0-0 reserved 0
> settle crew 1 2 5-9 ^9
  committed 0 generation 1 gap 0-0 reserved 9
> wait 70s
> tick
  19 CURSOR_STALLED {"committed": 0, "cursor": "crew", "group": true, "lag_events": 18, "lag_seconds": 13810, "moved_at": "2026-01-05T13:49:00Z", "stall_after_s": 60}
  20 CURSOR_STALLED {"committed": 16, "cursor": "reader", "group": false, "lag_events": 2, "lag_seconds": 3970, "moved_at": "2026-01-05T13:49:00Z", "stall_after_s": 60}
> settle crew 1 2 1-2
  committed 2 generation 1 gap 0-0 reserved 9
> settle crew 1 2 3-17
  committed 17 generation 1 gap 0-0 reserved 17
> settle crew 1 2 18
  committed 18 generation 1 gap 0-0 reserved 18
  21 CURSOR_RECOVERED {"committed": 18, "cursor": "crew", "group": true, "lag_events": 2, "lag_seconds": 0, "stalled_ms": 0}
