# A handler that fails for good gives its event to the dead letters.
> leads n1
  1 LEADER_ELECTED {"cause": "bootstrap", "leader_id": "n1", "term": 2}
> member n1 2
> create trainer 0
  committed 0 generation 0 gap 0-0
> open trainer
  committed 0 generation 1 gap 0-0
> publish 1 2 3 4
  at 2 3 4 5
  2 TRAINING_COMPLETED {"n": 1}
  3 TRAINING_COMPLETED {"n": 2}
  4 TRAINING_COMPLETED {"n": 3}
  5 TRAINING_COMPLETED {"n": 4}
> member n1 3
# A dead letter moves its cursor: what is in front of it counts as handled.
> dead trainer 3 1 out_of_memory
  letter 1 of "trainer" at 3, 3 attempts, 0 redrives, copy 0 committed 3 generation 1 gap 0-0
> letters
  1 dead trainer at 3: "out of memory", 3 attempts, died at 0s, lineage [3]
  1 letters, 0 redriven
> reads trainer
  4 TRAINING_COMPLETED {"n": 3}
  5 TRAINING_COMPLETED {"n": 4}
# The same again is answered as the first time; anything else that is committed is refused.
> dead trainer 3 1 out_of_memory
  letter 1 of "trainer" at 3, 3 attempts, 0 redrives, copy 0 committed 3 generation 1 gap 0-0
> dead trainer 2 1 out_of_memory
  conflict: cursor "trainer" has committed 3, which is not before 2
> dead trainer 5 0 stale
  fenced: generation 0 of cursor "trainer" is over, 1 holds it
> dead trainer 9 1 past_the_tail
  past_tail: a commit of 9 is past the tail, which is 5
> dead nobody 5 1 no_cursor
  not_found: there is no cursor "nobody"
# The event is redelivered to the cursor that dead-lettered it, and to nobody else. Dedup
# does not see it: the same content is still in the window.
> create other 0
  committed 0 generation 0 gap 0-0
> redrive 1
  done 1 skipped 0 missing [] no cursor [] at 6-6
  6 TRAINING_COMPLETED {"n": 2}
  7 DLQ_EVENTS_REPLAYED {"count": 1, "cursors": {"trainer": 1}, "dead": 0, "first_offset": 6, "last_offset": 6, "under_way": 1}
> publish 2
  at (3)
> letters
  1 redriven trainer at 3: "out of memory", 3 attempts, died at 0s, lineage [3 6], its copy is at 6
  1 letters, 1 redriven
> reads trainer
  4 TRAINING_COMPLETED {"n": 3}
  5 TRAINING_COMPLETED {"n": 4}
  6 TRAINING_COMPLETED {"n": 2}, letter 1 for trainer
  7 DLQ_EVENTS_REPLAYED {"count": 1, "cursors": {"trainer": 1}, "dead": 0, "first_offset": 6, "last_offset": 6, "under_way": 1}
> reads other
  1 LEADER_ELECTED {"cause": "bootstrap", "leader_id": "n1", "term": 2}
  2 TRAINING_COMPLETED {"n": 1}
  3 TRAINING_COMPLETED {"n": 2}
  4 TRAINING_COMPLETED {"n": 3}
  5 TRAINING_COMPLETED {"n": 4}
  7 DLQ_EVENTS_REPLAYED {"count": 1, "cursors": {"trainer": 1}, "dead": 0, "first_offset": 6, "last_offset": 6, "under_way": 1}
# It is under way: another redrive changes nothing, and it cannot be purged.
> redrive 1 1 7
  done 0 skipped 2 missing [7] no cursor [] at 0-0
> purge 1
  done 0 skipped 1 missing [] no cursor [] at 0-0
# It fails again: the same letter is dead again, and its lineage is longer.
> wait 1m
> dead trainer 6 1 still_out_of_memory
  letter 1 of "trainer" at 6, 6 attempts, 1 redrives, copy 0 committed 6 generation 1 gap 0-0
> letters
  1 dead trainer at 6: "still out of memory", 6 attempts, died at 1m0s, lineage [3 6]
  1 letters, 0 redriven
> redrive 1
  done 1 skipped 0 missing [] no cursor [] at 8-8
  8 TRAINING_COMPLETED {"n": 2}
  9 DLQ_EVENTS_REPLAYED {"count": 1, "cursors": {"trainer": 1}, "dead": 0, "first_offset": 8, "last_offset": 8, "under_way": 1}
# This time the handler handles it.
> commit trainer 8 1
  committed 8 generation 1 gap 0-0
> letters
  0 letters, 0 redriven
> redrive 1
  done 0 skipped 0 missing [1] no cursor [] at 0-0
> purge 1
  done 0 skipped 0 missing [1] no cursor [] at 0-0
# What a seek passes over is dead again, as it was.
> publish 5 6
  at 10 11
  10 TRAINING_COMPLETED {"n": 5}
  11 TRAINING_COMPLETED {"n": 6}
> dead trainer 10 1 bad_model
  letter 2 of "trainer" at 10, 3 attempts, 0 redrives, copy 0 committed 10 generation 1 gap 0-0
> redrive 2
  done 1 skipped 0 missing [] no cursor [] at 12-12
  12 TRAINING_COMPLETED {"n": 5}
  13 DLQ_EVENTS_REPLAYED {"count": 1, "cursors": {"trainer": 1}, "dead": 0, "first_offset": 12, "last_offset": 12, "under_way": 1}
> seek trainer 30
  past_tail: a seek to 30 is past the tail, which is 13
> seek trainer 13
  committed 12 generation 1 gap 0-0
> letters
  2 dead trainer at 10: "bad model", 3 attempts, died at 1m0s, lineage [10 12]
  1 letters, 0 redriven
> redrive 2
  done 1 skipped 0 missing [] no cursor [] at 14-14
  14 TRAINING_COMPLETED {"n": 5}
  15 DLQ_EVENTS_REPLAYED {"count": 1, "cursors": {"trainer": 1}, "dead": 0, "first_offset": 14, "last_offset": 14, "under_way": 1}
> seek trainer 15
  committed 14 generation 1 gap 0-0
> letters
  2 dead trainer at 10: "bad model", 3 attempts, died at 1m0s, lineage [10 12 14]
  1 letters, 0 redriven
# So is what a trim takes away before it was committed, and no event is reported as lost.
> redrive 2
  done 1 skipped 0 missing [] no cursor [] at 16-16
  16 TRAINING_COMPLETED {"n": 5}
  17 DLQ_EVENTS_REPLAYED {"count": 1, "cursors": {"trainer": 1}, "dead": 0, "first_offset": 16, "last_offset": 16, "under_way": 1}
> publish 7
  at 18
  18 TRAINING_COMPLETED {"n": 7}
> publish 8
  at 19
  19 TRAINING_COMPLETED {"n": 8}
> trim 18 force
  first 18 removed 17
  the log begins at 18
> letters
  2 dead trainer at 10: "bad model", 3 attempts, died at 1m0s, lineage [10 12 14 16]
  1 letters, 0 redriven
# And what was for a cursor that is removed. The letter stays for another one.
> redrive 2
  done 1 skipped 0 missing [] no cursor [] at 20-20
  20 TRAINING_COMPLETED {"n": 5}
  21 DLQ_EVENTS_REPLAYED {"count": 1, "cursors": {"trainer": 1}, "dead": 0, "first_offset": 20, "last_offset": 20, "under_way": 1}
> remove trainer
  committed 14 generation 1 gap 15-17
  {"from":15,"to":17,"reason":"forced","types":{"DLQ_EVENTS_REPLAYED":2}}
> letters
  2 dead trainer at 10: "bad model", 3 attempts, died at 1m0s, lineage [10 12 14 16 20]
  1 letters, 0 redriven
> redrive 2
  done 0 skipped 0 missing [] no cursor [2] at 0-0
> redrive to nobody 2
  not_found: there is no cursor "nobody"
> redrive to other 2
  done 1 skipped 0 missing [] no cursor [] at 22-22
  22 TRAINING_COMPLETED {"n": 5}
  23 DLQ_EVENTS_REPLAYED {"count": 1, "cursors": {"other": 1}, "dead": 0, "first_offset": 22, "last_offset": 22, "under_way": 1}
> letters
  2 redriven other at 0: "bad model", 3 attempts, died at 1m0s, lineage [10 12 14 16 20 22], its copy is at 22
  1 letters, 1 redriven
> reads other
  18 TRAINING_COMPLETED {"n": 7}
  19 TRAINING_COMPLETED {"n": 8}
  21 DLQ_EVENTS_REPLAYED {"count": 1, "cursors": {"trainer": 1}, "dead": 0, "first_offset": 20, "last_offset": 20, "under_way": 1}
  22 TRAINING_COMPLETED {"n": 5}, letter 2 for other
  23 DLQ_EVENTS_REPLAYED {"count": 1, "cursors": {"other": 1}, "dead": 0, "first_offset": 22, "last_offset": 22, "under_way": 1}
> open other
  committed 0 generation 1 gap 1-17
  {"from":1,"to":17,"reason":"forced","types":{"DLQ_EVENTS_REPLAYED":5,"LEADER_ELECTED":1,"TRAINING_COMPLETED":6}}
> commit other 22 1
  committed 22 generation 1 gap 0-0
> letters
  0 letters, 0 redriven
# Letters of another system have no cursor. The same row again adds nothing.
> import 11 12
  done 2 skipped 0 missing [] no cursor [] at 3-4
> import 11 13
  done 1 skipped 1 missing [] no cursor [] at 5-5
> redrive 3
  done 0 skipped 0 missing [] no cursor [3] at 0-0
> redrive to other 3
  done 1 skipped 0 missing [] no cursor [] at 24-24
  24 TRAINING_COMPLETED {"n": 11}
  25 DLQ_EVENTS_REPLAYED {"count": 1, "cursors": {"other": 1}, "dead": 2, "first_offset": 24, "last_offset": 24, "under_way": 1}
> letters
  3 redriven other at 0: "timeout", 2 attempts, died at 1m0s, lineage [24], its copy is at 24
  4 dead  at 0: "timeout", 2 attempts, died at 1m0s, lineage []
  5 dead  at 0: "timeout", 2 attempts, died at 1m0s, lineage []
  3 letters, 1 redriven
# Stale letters are reported once.
> due
  2m0s
> wait 24h
> tick
  26 DLQ_STALE_EVENTS {"count": 2, "dead": 2, "oldest_at": "2026-01-05T10:01:00Z", "stale_after_s": 86400, "under_way": 1}
> wait 1h
> tick
> dead other 25 1 bad_model
  letter 6 of "other" at 25, 3 attempts, 0 redrives, copy 0 committed 25 generation 1 gap 0-0
> wait 24h
> tick
  27 DLQ_STALE_EVENTS {"count": 1, "dead": 3, "oldest_at": "2026-01-06T11:01:00Z", "stale_after_s": 86400, "under_way": 0}
> letters
  4 dead  at 0: "timeout", 2 attempts, died at 1m0s, lineage []
  5 dead  at 0: "timeout", 2 attempts, died at 1m0s, lineage []
  6 dead other at 25: "bad model", 3 attempts, died at 25h1m0s, lineage [25]
  3 letters, 0 redriven
# They are purged by age.
> purgeold 24h30m 3 4 5
  done 2 skipped 0 missing [3] no cursor [] at 0-0
  28 DLQ_EVENTS_PURGED {"count": 2, "cursors": {"": 2}, "dead": 1, "reason": "request", "under_way": 0}
> set dlq.max_age 30h
  30h
> due
  49h2m0s
> wait 7h
> tick
  29 DLQ_EVENTS_PURGED {"count": 1, "cursors": {"other": 1}, "dead": 0, "reason": "max_age", "under_way": 0}
> letters
  0 letters, 0 redriven
# Past their bound in bytes a new one is refused, and its cursor stays.
> set dlq.max_bytes 1024
  1024
> publish 21
  at 30
  30 TRAINING_COMPLETED {"n": 21}
> publish 22
  at 31
  31 TRAINING_COMPLETED {"n": 22}
> publish 23
  at 32
  32 TRAINING_COMPLETED {"n": 23}
> dead other 27 1 full
  letter 7 of "other" at 27, 3 attempts, 0 redrives, copy 0 committed 27 generation 1 gap 0-0
> dead other 31 1 full
  letter 8 of "other" at 31, 3 attempts, 0 redrives, copy 0 committed 31 generation 1 gap 0-0
> dead other 32 1 full
  overloaded: the dead letters take 738 bytes, the limit is 1024
> commit other 33 1
  past_tail: a commit of 33 is past the tail, which is 32
> letters
  7 dead other at 27: "full", 3 attempts, died at 56h1m0s, lineage [27]
  8 dead other at 31: "full", 3 attempts, died at 56h1m0s, lineage [31]
  2 letters, 0 redriven
# From feature level 6 on an entry reports the letters that it stores: how many, of which cursors, and the last one.
> member n1 6
> set dlq.max_bytes 1048576
  1048576
> dead other 32 1 out_of_memory
  letter 9 of "other" at 32, 3 attempts, 0 redrives, copy 0 committed 32 generation 1 gap 0-0
  33 DLQ_EVENTS_STORED {"count": 1, "cursors": {"other": 1}, "dead": 3, "error": "out of memory", "event": "TRAINING_COMPLETED", "handler": "train", "letter_id": 9, "offset": 32, "under_way": 0}
# The letter of such a report is not reported, or a handler that fails on every event would have no end of letters.
> dead other 33 1 fails_on_everything
  letter 10 of "other" at 33, 3 attempts, 0 redrives, copy 0 committed 33 generation 1 gap 0-0
# An event that dies again is a stored letter, too; so are those of another system, which have no cursor.
> redrive 9
  done 1 skipped 0 missing [] no cursor [] at 34-34
  34 TRAINING_COMPLETED {"n": 23}
  35 DLQ_EVENTS_REPLAYED {"count": 1, "cursors": {"other": 1}, "dead": 3, "first_offset": 34, "last_offset": 34, "under_way": 1}
> dead other 34 1 again
  letter 9 of "other" at 34, 6 attempts, 1 redrives, copy 0 committed 34 generation 1 gap 0-0
  36 DLQ_EVENTS_STORED {"count": 1, "cursors": {"other": 1}, "dead": 4, "error": "again", "event": "TRAINING_COMPLETED", "handler": "train", "letter_id": 9, "offset": 34, "under_way": 0}
> import 31 32
  done 2 skipped 0 missing [] no cursor [] at 11-12
  37 DLQ_EVENTS_STORED {"count": 2, "cursors": {"": 2}, "dead": 6, "error": "timeout", "event": "TRAINING_COMPLETED", "handler": "", "letter_id": 12, "offset": 0, "under_way": 0}
# A handler without a cursor keeps its event by a copy: no cursor moves, and a retry changes nothing. It is redriven to
# the cursor that it names, once there is one.
> keep live.h 31 1 out_of_memory
  done 1 skipped 0 missing [] no cursor [] at 13-13
  38 DLQ_EVENTS_STORED {"count": 1, "cursors": {"live.h": 1}, "dead": 7, "error": "out of memory", "event": "TRAINING_COMPLETED", "handler": "train", "letter_id": 13, "offset": 31, "under_way": 0}
> keep live.h 31 1 out_of_memory
  done 0 skipped 1 missing [] no cursor [] at 0-0
> redrive 13
  done 0 skipped 0 missing [] no cursor [13] at 0-0
> create live.h 0
  committed 17 generation 0 gap 0-0
> redrive 13
  done 1 skipped 0 missing [] no cursor [] at 39-39
  39 TRAINING_COMPLETED {"n": 22}
  40 DLQ_EVENTS_REPLAYED {"count": 1, "cursors": {"live.h": 1}, "dead": 6, "first_offset": 39, "last_offset": 39, "under_way": 1}
> open live.h
  committed 17 generation 1 gap 0-0
> commit live.h 39 1
  committed 39 generation 1 gap 0-0
> letters
  7 dead other at 27: "full", 3 attempts, died at 56h1m0s, lineage [27]
  8 dead other at 31: "full", 3 attempts, died at 56h1m0s, lineage [31]
  9 dead other at 34: "again", 6 attempts, died at 56h1m0s, lineage [32 34]
  10 dead other at 33: "fails on everything", 3 attempts, died at 56h1m0s, lineage [33]
  11 dead  at 0: "timeout", 2 attempts, died at 56h1m0s, lineage []
  12 dead  at 0: "timeout", 2 attempts, died at 56h1m0s, lineage []
  6 letters, 0 redriven
