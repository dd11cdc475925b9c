# The window counts from the first acceptance and is not refreshed.
> leads n1
  1 LEADER_ELECTED {"cause": "bootstrap", "leader_id": "n1", "term": 2}
> publish 1 2 1
  at 2 3 (2)
  2 TRAINING_COMPLETED {"n": 1}
  3 TRAINING_COMPLETED {"n": 2}
> wait 59999999999ns
> publish 1
  at (2)
> explain 2
  {"Offset":2,"Type":"TRAINING_COMPLETED","Hash":"1a0e28de4bd1fdaaf725345d7312bbef758592936c70cce0b8a4027ba4f6f571","DedupID":"","Kind":"content","ByPolicy":false,"Source":"source-1","AppendedAt":"2026-01-05T10:00:00Z","Suppressed":2,"First":"2026-01-05T10:00:00Z","Last":"2026-01-05T10:00:59.999999999Z","Sources":[{"Source":"source-1","Count":2}],"InWindow":true,"Until":"2026-01-05T10:01:00Z","Others":null}
> due
  1m0s
> wait 1ns
> publish 1
  at 4
  4 TRAINING_COMPLETED {"n": 1}
> explain 2
  {"Offset":2,"Type":"TRAINING_COMPLETED","Hash":"1a0e28de4bd1fdaaf725345d7312bbef758592936c70cce0b8a4027ba4f6f571","DedupID":"","Kind":"content","ByPolicy":false,"Source":"source-1","AppendedAt":"2026-01-05T10:00:00Z","Suppressed":2,"First":"2026-01-05T10:00:00Z","Last":"2026-01-05T10:00:59.999999999Z","Sources":[{"Source":"source-1","Count":2}],"InWindow":false,"Until":"2026-01-05T10:01:00Z","Others":null}
# The same id with other content refuses its whole request and leaves nothing.
> publish 3=a
  at 5
  5 TRAINING_COMPLETED {"n": 3}
> publish 4 5=a 6
  conflict: the dedup_id was used at offset 5 for an event with other content
> publish 4 6 3=a
  at 6 7 (5)
  6 TRAINING_COMPLETED {"n": 4}
  7 TRAINING_COMPLETED {"n": 6}
# What is past the limit of the window is refused until there is room.
> stats
  first 1 last 7 keys 4 producers 0 accepted 6 suppressed 3 refused 1
> set dedup.max_keys 65535
  invalid: dedup.max_keys: "65535" is not a whole number from 65536 to 2147483648
> set dedup.window 10s
  10s
> wait 10s
> tick
> stats
  first 1 last 7 keys 0 producers 0 accepted 6 suppressed 3 refused 2
