# Edges of runs that are overdue are reported once.
> voters n1
> leads n1
  1 LEADER_ELECTED {"cause": "bootstrap", "leader_id": "n1", "term": 2}
> set chain.deadlines f:A->B=1m
  not_found: some members do not know the setting "chain.deadlines" yet
> wait 61s
> member n1 4
> set chain.deadlines f:A->B=1m
  f:A->B=1m
> set chain.deadlines f:A=1m
  invalid: chain.deadlines: "f:A=1m" is not FLOW:CAUSE->EFFECT=DURATION, such as training_pipeline:TRAINING_STARTED->TRAINING_COMPLETED=6h
> set chain.deadlines f:A->B=0s
  invalid: chain.deadlines: "f:A->B=0s" is not FLOW:CAUSE->EFFECT=DURATION, such as training_pipeline:TRAINING_STARTED->TRAINING_COMPLETED=6h
> overdue run-7 4 1m 0s
  2 CHAIN_OVERDUE {"correlation_id": "run-7", "deadline_ms": 60000, "flow": "f", "from_offset": 4, "from_stage": "A", "missing": "B", "waiting_ms": 61000}
> overdue run-7 4 1m 0s
> leads n2
  3 LEADER_LOST {"cause": "unknown", "led_ms": 61000, "old_leader": "n1", "term": 2}
  4 LEADER_ELECTED {"cause": "unknown", "leader_id": "n2", "leaderless_ms": 0, "previous_leader": "n1", "term": 3}
> overdue run-7 4 1m 0s
# Another edge, another run; not before its time is over.
> overdue run-7 5 1m 1s
  invalid: B of run "run-7" has waited for 1m0s, its deadline is 1m0s
> wait 1s
> overdue run-7 5 1m 1s
  5 CHAIN_OVERDUE {"correlation_id": "run-7", "deadline_ms": 60000, "flow": "f", "from_offset": 5, "from_stage": "A", "missing": "B", "waiting_ms": 61000}
> overdue run-8 4 1m 0s
  6 CHAIN_OVERDUE {"correlation_id": "run-8", "deadline_ms": 60000, "flow": "f", "from_offset": 4, "from_stage": "A", "missing": "B", "waiting_ms": 62000}
# Nor when it is too late to know whether it was reported.
> wait 62m
> overdue run-9 4 1m 0s
> overdue run-7 4 1m 0s
