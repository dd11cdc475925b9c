> voters n1
> leads n1
  1 LEADER_ELECTED {"cause": "bootstrap", "leader_id": "n1", "term": 2}
> member n1 4
# Everybody says what it listens to, for a time.
> client trainer-3 5m loss=training.* alarm=*_FAILED!attached
> wait 1m
> client watcher 30s all=*!connecting
> clients
  trainer-3 since 0s, last heard 0s, for 5m0s: loss training.* alarm *_FAILED
  watcher since 1m0s, last heard 1m0s, for 30s: all *
  2 clients, 3 subscriptions, 1 critical ones detached
> due
  1m30s
# A client that registers again replaces what it registered, and keeps its first time.
> wait 20s
> client watcher 30s all=*!attached
> clients
  trainer-3 since 0s, last heard 0s, for 5m0s: loss training.* alarm *_FAILED
  watcher since 1m0s, last heard 1m20s, for 30s: all *
  2 clients, 3 subscriptions, 0 critical ones detached
> due
  1m30s
# Who is silent for its time is forgotten, on an idle log too.
> wait 29s
> tick
> clients
  trainer-3 since 0s, last heard 0s, for 5m0s: loss training.* alarm *_FAILED
  watcher since 1m0s, last heard 1m20s, for 30s: all *
  2 clients, 3 subscriptions, 0 critical ones detached
> wait 1s
> tick
> clients
  trainer-3 since 0s, last heard 0s, for 5m0s: loss training.* alarm *_FAILED
  1 clients, 2 subscriptions, 0 critical ones detached
> due
  5m0s
# Who has no subscription any more takes itself away, once or twice.
> client trainer-3 5m
> client trainer-3 5m
> clients
  0 clients, 0 subscriptions, 0 critical ones detached
# What is refused.
> client hasty 29s a=b
  invalid: a TTL of 29s
> client slow 61m a=b
  invalid: a TTL of 1h1m0s
> set clients.max 2
  2
> client a 0s x=y
> client b 1h x=y
> client c 1m x=y
  overloaded: there are 2 clients, the limit is 2
> client b 1m x=y z=y
> set clients.max_bytes 1024
  invalid: clients.max_bytes: "1024" is not a whole number from 65536 to 1099511627776
> set clients.max_bytes 65536
  65536
> clients
  a since 1m50s, last heard 1m50s, for 5m0s: x y
  b since 1m50s, last heard 1m50s, for 1m0s: x y z y
  2 clients, 3 subscriptions, 0 critical ones detached
# What a client reports of its handlers is replaced by each renewal.
> member n1 6
> client a 5m x=y~3/5:boom z=y
> clients
  a since 1m50s, last heard 1m50s, for 5m0s: x y (3 timed out, 5 failed, open, boom) z y
  b since 1m50s, last heard 1m50s, for 1m0s: x y z y
  2 clients, 4 subscriptions, 0 critical ones detached
> client a 5m x=y~4/6:out_of_memory_on_the_gpu
> clients
  a since 1m50s, last heard 1m50s, for 5m0s: x y (4 timed out, 6 failed, open, out_of_memory_on_the_gpu)
  b since 1m50s, last heard 1m50s, for 1m0s: x y z y
  2 clients, 3 subscriptions, 0 critical ones detached
