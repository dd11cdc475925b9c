# What was appended again for one cursor is no loss to another: its gap has no types, and
# takes more in after a restart.
> leads n1
  1 LEADER_ELECTED {"cause": "bootstrap", "leader_id": "n1", "term": 2}
> member n1 3
> create trainer 0
  committed 0 generation 0 gap 0-0
> open trainer
  committed 0 generation 1 gap 0-0
> publish 1
  at 2
  2 TRAINING_COMPLETED {"n": 1}
> dead trainer 2 1 boom
  letter 1 of "trainer" at 2, 3 attempts, 0 redrives, copy 0 committed 2 generation 1 gap 0-0
> redrive 1
  done 1 skipped 0 missing [] no cursor [] at 3-3
  3 TRAINING_COMPLETED {"n": 1}
  4 DLQ_EVENTS_REPLAYED {"count": 1, "cursors": {"trainer": 1}, "dead": 0, "first_offset": 3, "last_offset": 3, "under_way": 1}
> create late 0
  committed 0 generation 0 gap 0-0
> open late
  committed 0 generation 1 gap 0-0
> commit late 2 1
  committed 2 generation 1 gap 0-0
> trim 4 force
  first 4 removed 3
  the log begins at 4
> open late
  committed 2 generation 2 gap 3-3
  {"from":3,"to":3,"reason":"forced"}
> restart
> publish 2
  at 5
  5 TRAINING_COMPLETED {"n": 2}
> trim 5 force
  first 5 removed 1
  the log begins at 5
> open late
  committed 2 generation 3 gap 3-4
  {"from":3,"to":4,"reason":"forced","types":{"DLQ_EVENTS_REPLAYED":1}}
