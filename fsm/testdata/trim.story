# A cursor holds events back up to its policy; past it, it is passed and gets a gap.
> leads n1
  1 LEADER_ELECTED {"cause": "bootstrap", "leader_id": "n1", "term": 2}
> create slow 8
  committed 0 generation 0 gap 0-0
> open slow
  committed 0 generation 1 gap 0-0
> publish 1 2
  at 2 3
  2 TRAINING_COMPLETED {"n": 1}
  3 TRAINING_COMPLETED {"n": 2}
> publish 3 4 5
  at 4 5 6
  4 TRAINING_COMPLETED {"n": 3}
  5 TRAINING_COMPLETED {"n": 4}
  6 TRAINING_COMPLETED {"n": 5}
> publish 6
  at 7
  7 TRAINING_COMPLETED {"n": 6}
> plan 7
  {"first":1,"removed":0,"held_by":"slow"}
> trim 4
  first 1 removed 0
> trim 99
  past_tail: offset 99 is past the tail, which is 7
> publish 7 8
  at 8 9
  8 TRAINING_COMPLETED {"n": 7}
  9 TRAINING_COMPLETED {"n": 8}
> trim 7
  first 7 removed 6
  the log begins at 7
> open slow
  committed 0 generation 2 gap 1-6
  {"from":1,"to":6,"reason":"compacted","types":{"LEADER_ELECTED":1,"TRAINING_COMPLETED":5}}
> trim 8 force
  first 8 removed 1
  the log begins at 8
> open slow
  committed 0 generation 3 gap 1-7
  {"from":1,"to":7,"reason":"forced","types":{"LEADER_ELECTED":1,"TRAINING_COMPLETED":6}}
> commit slow 7 3
  committed 7 generation 3 gap 0-0
# Retention by count trims whole blocks, by age what is older. It is applied by one entry
# of a second, and by every sixteenth.
> remove slow
  committed 7 generation 3 gap 0-0
> set retention.events 2
  2
> publish 9 10 11 12
  at 10 11 12 13
  10 TRAINING_COMPLETED {"n": 9}
  11 TRAINING_COMPLETED {"n": 10}
  12 TRAINING_COMPLETED {"n": 11}
  13 TRAINING_COMPLETED {"n": 12}
> due
  1s
> wait 1s
> publish 13
  at 14
  14 TRAINING_COMPLETED {"n": 13}
  the log begins at 10
> set retention.age 1h
  1h
> wait 1h
> due
  1m0s
> tick
  the log begins at 14
> publish 14
  at 15
  15 TRAINING_COMPLETED {"n": 14}
# A clock step does not make events old within the minute after it.
> step 2h
> tick
> due
  3h1m1s
> wait 2h1m
> tick
  the log begins at 15
