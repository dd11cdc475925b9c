# A retry is answered as the first time, long after the window, but not for ever.
> leads n1
  1 LEADER_ELECTED {"cause": "bootstrap", "leader_id": "n1", "term": 2}
> produce p 1 1 2
  at 2 3
  2 TRAINING_COMPLETED {"n": 1}
  3 TRAINING_COMPLETED {"n": 2}
> wait 14m
> produce p 1 1 2
  at 2 3 replayed
> produce p 1 1 3
  conflict: producer "p" already used sequence 1 for other events
> produce p 3 4
  out_of_sequence: producer "p" sent sequence 3, expected is 2
> produce p 2 1
  at 4
  4 TRAINING_COMPLETED {"n": 1}
> wait 15m
> produce p 2 1
  unknown_producer: nothing is known of producer "p", whose sequence is 2
> produce p 3 5
  unknown_producer: nothing is known of producer "p", whose sequence is 3
> produce p 1 6
  at 5
  5 TRAINING_COMPLETED {"n": 6}
> produce q 0 6
  invalid: producer "q" sent sequence 0
> stats
  first 1 last 5 keys 1 producers 1 accepted 4 suppressed 0 refused 5
