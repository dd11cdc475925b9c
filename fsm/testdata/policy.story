# Before all members know policies, nothing has one: the gate decides by content.
> member n1 4
  1 LEADER_ELECTED {"cause": "bootstrap", "leader_id": "", "term": 1}
> leads n1
  2 LEADER_ELECTED {"cause": "bootstrap", "leader_id": "n1", "term": 2}
> publish 1 1
  at 3 (3)
  3 TRAINING_COMPLETED {"n": 1}
> member n1 5
# By a field: what else the payload has does not count.
> policy fields - run
> publish 1/a 2/a 3/b
  at 4 (4) 5
  4 TRAINING_COMPLETED {"n": 1, "run": "a"}
  5 TRAINING_COMPLETED {"n": 3, "run": "b"}
> keys
  2
> publish 4/a
  at (4)
> explain 4
  {"Offset":4,"Type":"TRAINING_COMPLETED","Hash":"75451a142370c13c0dd41cd1d2f1c5707cc1107e5f61a26b7b618d3eb47d655f","DedupID":"","Kind":"fields","ByPolicy":true,"Source":"source-1","AppendedAt":"2026-01-05T10:00:00Z","Suppressed":2,"First":"2026-01-05T10:00:00Z","Last":"2026-01-05T10:00:00Z","Sources":[{"Source":"source-1","Count":1},{"Source":"source-2","Count":1}],"InWindow":true,"Until":"2026-01-05T10:01:00Z","Others":null}
# An event without the field is compared by its content.
> publish 5 6 5
  at 6 7 (6)
  6 TRAINING_COMPLETED {"n": 5}
  7 TRAINING_COMPLETED {"n": 6}
# What a call says goes before the policy.
> publish 7/a=once 7/a=once
  at 8 (8)
  8 TRAINING_COMPLETED {"n": 7, "run": "a"}
> due
  1m0s
# The window of the policy is its own, also past dedup.window.
> policy fields 1h run
> wait 59m
> publish 8/a 8/c
  at (4) 9
  9 TRAINING_COMPLETED {"n": 8, "run": "c"}
> due
  1h0m0s
> restart
> publish 9/a 9/c
  at (4) (9)
> wait 1m
> publish 10/a 10/c
  at 10 (9)
  10 TRAINING_COMPLETED {"n": 10, "run": "a"}
> keys
  2
# A shorter window counts at once, and what it removed does not count again.
> wait 2s
> policy fields 1s run
> keys
  0
> policy fields 1h run
> publish 11/a
  at 11
  11 TRAINING_COMPLETED {"n": 11, "run": "a"}
# By other fields, and without a policy, nothing is known of the events before.
> policy content 2m
> publish 11/a 11/a
  at 12 (12)
  12 TRAINING_COMPLETED {"n": 11, "run": "a"}
> policy off -
> publish 11/a 11/a
  at 13 14
  13 TRAINING_COMPLETED {"n": 11, "run": "a"}
  14 TRAINING_COMPLETED {"n": 11, "run": "a"}
> nopolicy
> publish 11/a 11/a
  at 15 (15)
  15 TRAINING_COMPLETED {"n": 11, "run": "a"}
> keys
  0
> nopolicy
  not_found: no dedup policy is set for TRAINING_COMPLETED
# A refused request leaves no key.
> policy fields - n
> publish 20 21=x
  at 16 17
  16 TRAINING_COMPLETED {"n": 20}
  17 TRAINING_COMPLETED {"n": 21}
> publish 30 22=x
  conflict: the dedup_id was used at offset 17 for an event with other content
> publish 30
  at 18
  18 TRAINING_COMPLETED {"n": 30}
> keys
  2
# The keys of all policies together are bounded.
> set dedup.policy_max_keys 2
  2
> publish 31
  overloaded: the dedup policies of types hold 2 keys, the limit is 2
> wait 1m
> publish 31
  at 19
  19 TRAINING_COMPLETED {"n": 31}
> keys
  1
# What is no policy is refused.
> policy sometimes -
  invalid: event: mode: "sometimes" is no dedup mode
> policy fields -
  invalid: event: fields: none, and the mode is fields
> policy content - n
  invalid: event: fields: the mode content compares none
> policy off 1m
  invalid: event: window: the mode off has none
> policy content 1ms
  invalid: event: window: 1ms is not from 1s to 744h
> policy fields - b a
  invalid: event: fields: "a" is there twice, or not in its order
