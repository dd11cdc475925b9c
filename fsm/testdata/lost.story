> voters n1
> leads n1
  1 LEADER_ELECTED {"cause": "bootstrap", "leader_id": "n1", "term": 2}
> member n1 5
# Below the level of lost clients one that is silent is forgotten without an event.
> client early 30s alarm=*_FAILED!attached
> wait 30s
> tick
> clients
  0 clients, 0 subscriptions, 0 critical ones detached
> member n1 6
# From it on, its end is an event, once, with what nobody listens to any more.
> client trainer-3 30s loss=training.* alarm=*_FAILED!attached
> client watcher 1m all=*
> wait 30s
> tick
  2 DAEMON_STATUS_CHANGED {"client": "trainer-3", "critical": true, "daemon": "trainer-3", "host": "gpu-1", "new": "lost", "old": "registered", "pid": 7, "seen_at": "2026-01-05T10:00:30Z", "subscription_count": 2, "subscriptions": ["loss", "alarm"], "ttl_s": 30, "unheard": ["alarm"], "unheard_count": 1}
> tick
> clients
  watcher since 30s, last heard 30s, for 1m0s: all *
  1 clients, 1 subscriptions, 0 critical ones detached
  1 lost
  nobody has alarm *_FAILED since trainer-3 was lost at 1m0s
# It comes back, which is an event, once.
> wait 10s
> client trainer-3 30s loss=training.* alarm=*_FAILED!attached
  3 DAEMON_STATUS_CHANGED {"client": "trainer-3", "daemon": "trainer-3", "host": "gpu-1", "lost_at": "2026-01-05T10:01:00Z", "lost_ms": 10000, "new": "registered", "old": "lost", "pid": 7}
> client trainer-3 30s loss=training.* alarm=*_FAILED!attached
> clients
  trainer-3 since 1m10s, last heard 1m10s, for 30s: loss training.* alarm *_FAILED
  watcher since 30s, last heard 30s, for 1m0s: all *
  2 clients, 3 subscriptions, 0 critical ones detached
# Who takes itself away is not lost.
> client trainer-3 30s
> wait 30s
> tick
  4 DAEMON_STATUS_CHANGED {"client": "watcher", "critical": false, "daemon": "watcher", "host": "gpu-1", "new": "lost", "old": "registered", "pid": 7, "seen_at": "2026-01-05T10:00:30Z", "subscription_count": 1, "subscriptions": ["all"], "ttl_s": 60, "unheard": [], "unheard_count": 0}
> clients
  0 clients, 0 subscriptions, 0 critical ones detached
  1 lost
# A subscription that another client has is not missing, and what is missing is found by its name.
> client a 30s alarm=*_FAILED!attached only=x!attached
> client b 1m alarm=*_FAILED!attached
> wait 30s
> tick
  5 DAEMON_STATUS_CHANGED {"client": "a", "critical": true, "daemon": "a", "host": "gpu-1", "new": "lost", "old": "registered", "pid": 7, "seen_at": "2026-01-05T10:01:40Z", "subscription_count": 2, "subscriptions": ["alarm", "only"], "ttl_s": 30, "unheard": ["only"], "unheard_count": 1}
> clients
  b since 1m40s, last heard 1m40s, for 1m0s: alarm *_FAILED
  1 clients, 1 subscriptions, 0 critical ones detached
  2 lost
  nobody has only x since a was lost at 2m10s
> wait 30s
> tick
  6 DAEMON_STATUS_CHANGED {"client": "b", "critical": true, "daemon": "b", "host": "gpu-1", "new": "lost", "old": "registered", "pid": 7, "seen_at": "2026-01-05T10:01:40Z", "subscription_count": 1, "subscriptions": ["alarm"], "ttl_s": 60, "unheard": ["alarm"], "unheard_count": 1}
> clients
  0 clients, 0 subscriptions, 0 critical ones detached
  3 lost
  nobody has alarm *_FAILED since b was lost at 2m40s
  nobody has only x since a was lost at 2m10s
> restart
> client c 30s alarm=*_FAILED!connecting
> clients
  c since 2m40s, last heard 2m40s, for 30s: alarm *_FAILED
  1 clients, 1 subscriptions, 1 critical ones detached
  3 lost
  nobody has only x since a was lost at 2m10s
# The lost client comes back without what is missing: that is not wanted any more.
> client a 30s other=y
  7 DAEMON_STATUS_CHANGED {"client": "a", "daemon": "a", "host": "gpu-1", "lost_at": "2026-01-05T10:02:10Z", "lost_ms": 30000, "new": "registered", "old": "lost", "pid": 7}
> clients
  a since 2m40s, last heard 2m40s, for 30s: other y
  c since 2m40s, last heard 2m40s, for 30s: alarm *_FAILED
  2 clients, 2 subscriptions, 1 critical ones detached
  2 lost
# A new leader: nobody could register while there was none.
> wait 1h
> leads n1
  8 LEADER_LOST {"cause": "reelected", "led_ms": 160000, "old_leader": "n1", "term": 2}
  9 LEADER_ELECTED {"cause": "reelected", "leader_id": "n1", "leaderless_ms": 3600000, "previous_leader": "n1", "term": 3}
> tick
> clients
  a since 2m40s, last heard 2m40s, for 30s: other y
  c since 2m40s, last heard 2m40s, for 30s: alarm *_FAILED
  2 clients, 2 subscriptions, 1 critical ones detached
  2 lost
> wait 29s
> tick
> client a 30s other=y
> wait 1s
> tick
  10 DAEMON_STATUS_CHANGED {"client": "c", "critical": true, "daemon": "c", "host": "gpu-1", "new": "lost", "old": "registered", "pid": 7, "seen_at": "2026-01-05T10:02:40Z", "subscription_count": 1, "subscriptions": ["alarm"], "ttl_s": 30, "unheard": ["alarm"], "unheard_count": 1}
> clients
  a since 2m40s, last heard 1h3m9s, for 30s: other y
  1 clients, 1 subscriptions, 0 critical ones detached
  3 lost
  nobody has alarm *_FAILED since c was lost at 1h3m10s
# A step of the clock is no time in which a client is silent.
> client e 30s x=y
> leads n1 restart 0s 1h
  11 LEADER_LOST {"cause": "restart", "led_ms": 30000, "old_leader": "n1", "term": 3}
  12 LEADER_ELECTED {"cause": "restart", "leader_id": "n1", "leaderless_ms": 3600000, "previous_leader": "n1", "term": 4}
> step 3h
> wait 3h
> tick
> clients
  a since 2m40s, last heard 1h3m9s, for 30s: other y
  e since 1h3m10s, last heard 1h3m10s, for 30s: x y
  2 clients, 2 subscriptions, 0 critical ones detached
  3 lost
  nobody has alarm *_FAILED since c was lost at 1h3m10s
> client e 30s
# Who is removed by hand is forgotten with what it listened to.
> client d 30s guard=z!attached
> wait 30s
> tick
  13 DAEMON_STATUS_CHANGED {"client": "a", "critical": false, "daemon": "a", "host": "gpu-1", "new": "lost", "old": "registered", "pid": 7, "seen_at": "2026-01-05T11:03:09Z", "subscription_count": 1, "subscriptions": ["other"], "ttl_s": 30, "unheard": [], "unheard_count": 0}
  14 DAEMON_STATUS_CHANGED {"client": "d", "critical": true, "daemon": "d", "host": "gpu-1", "new": "lost", "old": "registered", "pid": 7, "seen_at": "2026-01-05T14:03:10Z", "subscription_count": 1, "subscriptions": ["guard"], "ttl_s": 30, "unheard": ["guard"], "unheard_count": 1}
> clients
  0 clients, 0 subscriptions, 0 critical ones detached
  5 lost
  nobody has alarm *_FAILED since c was lost at 1h3m10s
  nobody has guard z since d was lost at 4h3m40s
> client d 30s
> clients
  0 clients, 0 subscriptions, 0 critical ones detached
  4 lost
  nobody has alarm *_FAILED since c was lost at 1h3m10s
# A day later a client that comes back is one like any other.
> wait 23h
> wait 59m30s
> tick
> client b 30s x=y
> tick
> client c 30s x=y
> client b 30s
> client c 30s
> clients
  0 clients, 0 subscriptions, 0 critical ones detached
  1 lost
# With no room for them, those who were lost first are forgotten.
> set clients.max 1
  1
> client p 30s x=y
> wait 30s
> tick
  15 DAEMON_STATUS_CHANGED {"client": "p", "critical": false, "daemon": "p", "host": "gpu-1", "new": "lost", "old": "registered", "pid": 7, "seen_at": "2026-01-06T14:03:10Z", "subscription_count": 1, "subscriptions": ["x"], "ttl_s": 30, "unheard": [], "unheard_count": 0}
> client q 30s x=y
> wait 30s
> tick
  16 DAEMON_STATUS_CHANGED {"client": "q", "critical": false, "daemon": "q", "host": "gpu-1", "new": "lost", "old": "registered", "pid": 7, "seen_at": "2026-01-06T14:03:40Z", "subscription_count": 1, "subscriptions": ["x"], "ttl_s": 30, "unheard": [], "unheard_count": 0}
> clients
  0 clients, 0 subscriptions, 0 critical ones detached
  2 lost
> tick
> clients
  0 clients, 0 subscriptions, 0 critical ones detached
  1 lost
# A client may say which coordinator it is, until it registers without.
> client h@health_manager 30s x=y
> clients
  h since 28h4m10s, last heard 28h4m10s, for 30s, as health_manager: x y
  1 clients, 1 subscriptions, 0 critical ones detached
  1 lost
> restart
> clients
  h since 28h4m10s, last heard 28h4m10s, for 30s, as health_manager: x y
  1 clients, 1 subscriptions, 0 critical ones detached
  1 lost
> client h 30s x=y
> clients
  h since 28h4m10s, last heard 28h4m10s, for 30s: x y
  1 clients, 1 subscriptions, 0 critical ones detached
  1 lost
