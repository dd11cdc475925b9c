# A cursor that lags too much is reported once, and once when it has caught up; between the
# limits nothing changes, whoever leads.
> leads n1
  1 LEADER_ELECTED {"cause": "bootstrap", "leader_id": "n1", "term": 2}
> set backpressure.lag work-*=100/20
  not_found: some members do not know the setting "backpressure.lag" yet
> member n1 7
> set backpressure.lag work-*=20/100
  invalid: backpressure.lag: "work-*=20/100" is not NAME=HIGH/LOW or START*=HIGH/LOW with LOW at least 2 below HIGH, such as selfplay-*=10000/2000
> set backpressure.lag work-*=101/100
  invalid: backpressure.lag: "work-*=101/100" is not NAME=HIGH/LOW or START*=HIGH/LOW with LOW at least 2 below HIGH, such as selfplay-*=10000/2000
> set backpressure.lag work-*-b=100/20
  invalid: backpressure.lag: "work-*-b=100/20" is not NAME=HIGH/LOW or START*=HIGH/LOW with LOW at least 2 below HIGH, such as selfplay-*=10000/2000
> set backpressure.lag =100/20
  invalid: backpressure.lag: "=100/20" is not NAME=HIGH/LOW or START*=HIGH/LOW with LOW at least 2 below HIGH, such as selfplay-*=10000/2000
> set backpressure.lag work-*=100/20,other=5/0,crew=10/3
  work-*=100/20,other=5/0,crew=10/3
> create work-a 0
  committed 0 generation 0 gap 0-0
> create other 0
  committed 0 generation 0 gap 0-0
> create free 0
  committed 0 generation 0 gap 0-0
> group crew 0 0 0
  committed 0 generation 1 gap 0-0 reserved 0
> lag work-a 99
> lag free 1000000
> lag work-a 100
  committed 0 generation 0 gap 0-0
  2 BACKPRESSURE_ACTIVATED {"activate_at": 100, "cursor": "work-a", "group": false, "lag_events": 100, "queue_depth": 100, "release_at": 20}
> wait 2s
> lag work-a 500
> lag work-a 21
# A new leader and a restart report nothing again.
> leads n2
  3 LEADER_LOST {"cause": "unknown", "led_ms": 2000, "old_leader": "n1", "term": 2}
  4 LEADER_ELECTED {"cause": "unknown", "leader_id": "n2", "leaderless_ms": 0, "previous_leader": "n1", "term": 3}
> lag work-a 300
> restart
> lag work-a 300
> lag work-a 20
  committed 0 generation 0 gap 0-0
  5 BACKPRESSURE_RELEASED {"activate_at": 100, "active_ms": 2000, "cursor": "work-a", "group": false, "lag_events": 20, "queue_depth": 20, "reason": "lag", "release_at": 20}
> lag work-a 20
> lag work-a 99
> lag work-a 101
  committed 0 generation 0 gap 0-0
  6 BACKPRESSURE_ACTIVATED {"activate_at": 100, "cursor": "work-a", "group": false, "lag_events": 101, "queue_depth": 101, "release_at": 20}
# A report about a cursor that is gone changes nothing; its removal releases.
> remove work-a
  committed 0 generation 0 gap 0-0
  7 BACKPRESSURE_RELEASED {"activate_at": 100, "active_ms": 0, "cursor": "work-a", "group": false, "lag_events": 0, "queue_depth": 0, "reason": "removed", "release_at": 20}
> lag work-a 500
> create work-a 0
  committed 0 generation 0 gap 0-0
> lag work-a 50
> lag work-a 100
  committed 0 generation 0 gap 0-0
  8 BACKPRESSURE_ACTIVATED {"activate_at": 100, "cursor": "work-a", "group": false, "lag_events": 100, "queue_depth": 100, "release_at": 20}
# A group is reported as one.
> lag crew 10
  committed 0 generation 1 gap 0-0 reserved 0
  9 BACKPRESSURE_ACTIVATED {"activate_at": 10, "cursor": "crew", "group": true, "lag_events": 10, "queue_depth": 10, "release_at": 3}
> lag crew 3
  committed 0 generation 1 gap 0-0 reserved 0
  10 BACKPRESSURE_RELEASED {"activate_at": 10, "active_ms": 0, "cursor": "crew", "group": true, "lag_events": 3, "queue_depth": 3, "reason": "lag", "release_at": 3}
# Without a limit the next report releases, whatever the lag.
> lag other 7
  committed 0 generation 0 gap 0-0
  11 BACKPRESSURE_ACTIVATED {"activate_at": 5, "cursor": "other", "group": false, "lag_events": 7, "queue_depth": 7, "release_at": 0}
> set backpressure.lag other=2/0
  other=2/0
> lag work-a 1000
  committed 0 generation 0 gap 0-0
  12 BACKPRESSURE_RELEASED {"active_ms": 0, "cursor": "work-a", "group": false, "lag_events": 1000, "queue_depth": 1000, "reason": "setting"}
> lag other 1
> restart
> lag other 0
  committed 0 generation 0 gap 0-0
  13 BACKPRESSURE_RELEASED {"activate_at": 2, "active_ms": 0, "cursor": "other", "group": false, "lag_events": 0, "queue_depth": 0, "reason": "lag", "release_at": 0}
