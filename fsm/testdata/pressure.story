# What leaders say of their queue is reported once, and a new leader resumes where the one
# before was.
> voters n1 n2
> leads n1
  1 LEADER_ELECTED {"cause": "bootstrap", "leader_id": "n1", "term": 2}
> member n1 4
> full 90
  2 BACKPRESSURE_ACTIVATED {"leader_id": "n1", "queue_bytes": 1048576, "queue_depth": 90, "refused": 3}
> full 95
> wait 1500ms
> leads n2
  3 LEADER_LOST {"cause": "unknown", "led_ms": 0, "old_leader": "n1", "term": 2}
  4 LEADER_ELECTED {"cause": "unknown", "leader_id": "n2", "leaderless_ms": 1500, "previous_leader": "n1", "term": 3}
  5 QUORUM_AT_RISK {"cause": "configuration", "healthy": 2, "limiting": [], "quorum": 2, "voters": 2}
> full 99
> wait 1s
> released 3
  6 BACKPRESSURE_RELEASED {"active_ms": 2500, "leader_id": "n2", "queue_bytes": 1048576, "queue_depth": 3, "refused": 3}
> released 0
> full 80
  7 BACKPRESSURE_ACTIVATED {"leader_id": "n2", "queue_bytes": 1048576, "queue_depth": 80, "refused": 3}
