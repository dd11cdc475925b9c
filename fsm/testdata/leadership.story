# A first leader, then one that crashes, one that steps down, one that takes its
# word back, and one that leads twice in a row.
> leads n1
  1 LEADER_ELECTED {"cause": "bootstrap", "leader_id": "n1", "term": 2}
> publish 1
  at 2
  2 TRAINING_COMPLETED {"n": 1}
> wait 2s
> leads n2 heartbeat_timeout
  3 LEADER_LOST {"cause": "heartbeat_timeout", "old_leader": "n1", "term": 2}
  4 LEADER_ELECTED {"cause": "heartbeat_timeout", "leader_id": "n2", "leaderless_ms": 2000, "previous_leader": "n1", "term": 3}
> intent n3 drain
> wait 500ms
> leads n3
  5 LEADER_STEPDOWN {"cause": "drain", "leader_id": "n2", "target": "n3", "term": 3}
  6 LEADER_ELECTED {"cause": "stepdown", "leader_id": "n3", "leaderless_ms": 500, "previous_leader": "n2", "term": 4}
> intent n1 upgrade
> abort
> leads n1
  7 LEADER_LOST {"cause": "unknown", "old_leader": "n3", "term": 4}
  8 LEADER_ELECTED {"cause": "unknown", "leader_id": "n1", "leaderless_ms": 0, "previous_leader": "n3", "term": 5}
> leads n1
  9 LEADER_LOST {"cause": "reelected", "old_leader": "n1", "term": 5}
  10 LEADER_ELECTED {"cause": "reelected", "leader_id": "n1", "leaderless_ms": 0, "previous_leader": "n1", "term": 6}
