> voters n1
> leads n1
  1 LEADER_ELECTED {"cause": "bootstrap", "leader_id": "n1", "term": 2}
> member n1 9
> set schedule.max 2
  2
# An event waits for its time. The same schedule again is the same one; another under its id is refused.
> schedule a 1 10m
  a at 10m0s, offset 0
> schedule a 1 10m
  a at 10m0s, offset 0
> schedule a 2 10m
  exists: "a" is an event for 2026-01-05T10:10:00Z with other content, or another time
> schedule a 1 20m
  exists: "a" is an event for 2026-01-05T10:10:00Z with other content, or another time
> schedule b 2 1m
  b at 1m0s, offset 0
> schedule c 3 1m
  overloaded: 2 events are scheduled, which is the limit
> restart
> due
  1m0s
# Nothing is published before its time, or without a schedule.
> deliver b 2
  invalid: 1 events, for 2026-01-05T10:01:00Z
> deliver c 3
  not_found: no event is scheduled as "c"
> wait 1m
> deliver b 2
  at 2
  2 TRAINING_COMPLETED {"n": 2}
# Once it is published, another proposal changes nothing, and neither does the schedule again.
> deliver b 2
  b at 1m0s, offset 2
> schedule b 2 1m
  b at 1m0s, offset 2
> unschedule b
  conflict: the event "b" was published
> due
  2m0s
# One that repeats an event of the dedup window is answered with that one.
> wait 8m50s
> publish 1
  at 3
  3 TRAINING_COMPLETED {"n": 1}
> wait 10s
> deliver a 1
  at (3)
> unschedule a
  conflict: the event "a" was published
# One that is removed is not published.
> schedule c 3 1m
  c at 1m0s, offset 0
> unschedule c
  c at 1m0s, offset 0
> deliver c 3
  not_found: no event is scheduled as "c"
> unschedule c
  not_found: no event is scheduled as "c"
# What was published is forgotten after producer.ttl.
> wait 30m
> tick
> schedule a 1 10m
  a at 10m0s, offset 0
> deliver a 1
  at 4
  4 TRAINING_COMPLETED {"n": 1}
# More events than one.
> schedule d 4 10m
  d at 10m0s, offset 0
> deliver d 4 5
  invalid: 2 events, for 2026-01-05T10:10:00Z
> deliver d 4
  at 5
  5 TRAINING_COMPLETED {"n": 4}
