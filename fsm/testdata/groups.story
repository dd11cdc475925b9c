# The settings of groups are of feature level 4.
> leads n1
  1 LEADER_ELECTED {"cause": "bootstrap", "leader_id": "n1", "term": 2}
> member n1 3
> set group.ack_wait 1s
  not_found: some members do not know the setting "group.ack_wait" yet
> member n1 4
> group work
  committed 0 generation 1 gap 0-0 reserved 0
> group work
  committed 0 generation 1 gap 0-0 reserved 0
> group work 50001
  invalid: a max_pending of 50001
> group work 7
  exists: the cursor "work" exists with another filter or policy
> create work 0
  exists: there is a group "work"
> create plain 0
  committed 0 generation 0 gap 0-0
> group plain
  exists: there is a cursor "plain" of one reader
# Only its members acknowledge: what one reader does with a cursor is refused.
> open work
  invalid: "work" is a group; join it
> commit work 1 1
  invalid: "work" is a group; join it
> dead work 1 1 boom
  invalid: "work" is a group; join it
> publish 1 2 3 4 5 6
  at 2 3 4 5 6 7
  2 TRAINING_COMPLETED {"n": 1}
  3 TRAINING_COMPLETED {"n": 2}
  4 TRAINING_COMPLETED {"n": 3}
  5 TRAINING_COMPLETED {"n": 4}
  6 TRAINING_COMPLETED {"n": 5}
  7 TRAINING_COMPLETED {"n": 6}
# The leader of term 2 hands the events up to 5 out. What is acknowledged out of order is kept.
> settle work 1 2 ^5
  committed 0 generation 1 gap 0-0 reserved 5
> settle work 1 2 3-4
  committed 0 generation 1 gap 0-0 reserved 5
> shared work
  settled up to 0 and [{3 4}], handed out up to 5
# What is in front of it arrives: the floor moves over all that is settled.
> settle work 1 2 1-2
  committed 4 generation 1 gap 0-0 reserved 5
> shared work
  settled up to 4 and [], handed out up to 5
# Offset 5 failed twice, by what the leader says: the count never falls. What is settled, or was not
# handed out, has no retry.
> settle work 1 2 4:9:settled 5:2:boom 7:1:early
  committed 4 generation 1 gap 0-0 reserved 5
> settle work 1 2 5:1:again
  committed 4 generation 1 gap 0-0 reserved 5
> shared work
  settled up to 4 and [], handed out up to 5
  5 redelivered not before 1s, deliveries 2: again
> settle work 1 2 5
  committed 5 generation 1 gap 0-0 reserved 5
> shared work
  settled up to 5 and [], handed out up to 5
# Another term's leader, another generation, the wrong kind of cursor, what is not there.
> settle work 1 1 6
  fenced: term 1, whose leader has settled this, is over: this is term 2
> settle work 2 2 6
  fenced: generation 2 of group "work" is over, this is 1
> settle plain 0 2 6
  invalid: "plain" is a cursor of one reader, no group
> settle nobody 0 2 6
  not_found: there is no group "nobody"
> settle work 1 2 99
  past_tail: a settlement up to 99 is past the tail, which is 7
> settle work 1 2 ^99
  past_tail: a settlement up to 99 is past the tail, which is 7
> settle work 1 2 7,6
  invalid: the ranges do not ascend, or overlap
> settle work 1 2 6:1:x 6:1:x
  invalid: the retries do not ascend
# An event dies: it is settled, and nothing else.
> settle work 1 2 ^7 6:5:boom
  committed 5 generation 1 gap 0-0 reserved 7
> deadof work 1 2 7 out_of_memory
  letter 1 of "work" at 7, 3 attempts, 0 redrives, copy 0 committed 5 generation 1 gap 0-0 reserved 7
> shared work
  settled up to 5 and [{7 7}], handed out up to 7
  6 redelivered not before 1s, deliveries 5: boom
> letters
  1 dead work at 7: "out of memory", 3 attempts, died at 0s, lineage [7]
  1 letters, 0 redriven
> deadof work 1 2 7 out_of_memory
  letter 1 of "work" at 7, 3 attempts, 0 redrives, copy 0 committed 5 generation 1 gap 0-0 reserved 7
> deadof work 1 2 3 handled_before
  conflict: group "work" has settled 3
> deadof work 1 1 6 of_another_term
  fenced: term 1, whose leader has settled this, is over: this is term 2
# Its copy is for this group, and resolves its letter when it is settled, wherever the floor is.
> redrive 1
  done 1 skipped 0 missing [] no cursor [] at 8-8
  8 TRAINING_COMPLETED {"n": 6}
  9 DLQ_EVENTS_REPLAYED {"count": 1, "cursors": {"work": 1}, "dead": 0, "first_offset": 8, "last_offset": 8, "under_way": 1}
> settle work 1 2 8
  committed 5 generation 1 gap 0-0 reserved 8
> letters
  0 letters, 0 redriven
> shared work
  settled up to 5 and [{7 8}], handed out up to 8
  6 redelivered not before 1s, deliveries 5: boom
# A trim passes the group and reports what was open; that is not redelivered.
> trim 8 force
  first 8 removed 7
  the log begins at 8
> shared work
  settled up to 5 and [{7 8}], handed out up to 8
> settle work 1 2 ^8
  committed 5 generation 1 gap 6-7 reserved 8
  {"from":6,"to":7,"reason":"forced","uncounted":1}
> settle work 1 2 6
  committed 8 generation 1 gap 0-0 reserved 8
> shared work
  settled up to 8 and [], handed out up to 8
# A seek starts over: what was known is gone, and the leader has to load it again.
> settle work 1 2 ^9
  committed 8 generation 1 gap 0-0 reserved 9
> seek work 3
  committed 2 generation 2 gap 3-7 reserved 2
  {"from":3,"to":7,"reason":"forced","types":{"TRAINING_COMPLETED":2},"uncounted":3}
> shared work
  settled up to 2 and [], handed out up to 2
> settle work 1 2 8
  fenced: generation 1 of group "work" is over, this is 2
> settle work 2 2 8
  committed 2 generation 2 gap 3-7 reserved 8
  {"from":3,"to":7,"reason":"forced","types":{"TRAINING_COMPLETED":2},"uncounted":3}
> remove work
  committed 2 generation 2 gap 3-7 reserved 8
  {"from":3,"to":7,"reason":"forced","types":{"TRAINING_COMPLETED":2},"uncounted":3}
> shared work
  there is no group "work"
# Made again under the same name, it is another group.
> group work
  committed 7 generation 3 gap 0-0 reserved 7
> settle work 2 2 8
  fenced: generation 2 of group "work" is over, this is 3
> shared work
  settled up to 7 and [], handed out up to 7
