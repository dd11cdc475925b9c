> voters n1
> leads n1
  1 LEADER_ELECTED {"cause": "bootstrap", "leader_id": "n1", "term": 2}
> member n1 8
> resource net:a 100 Mbit/s preemptible
> resource net:b 50 Mbit/s
# Whatever fits is granted. The fence is the offset of the event that says so.
> allocate copy LOW 15s net:a=60
  fence 2, waits false
  2 ALLOCATION_GRANTED {"allocation": "copy", "amounts": {"net:a": 60}, "fence": 2, "holder": "hcopy", "priority": "LOW", "risen_to": "LOW", "waited_ms": 0}
> allocate copy LOW 15s net:a=60
  fence 2, waits false
> allocate copy LOW 15s net:a=50
  conflict: copy is an allocation with other amounts, or another priority
> allocate big NORMAL 15s net:a=60 net:b=50
  fence 0, waits false
> queue big NORMAL 1h net:a=60 net:b=50
  fence 0, waits true
# Nothing overtakes it where both want the same, although there is room.
> allocate small NORMAL 15s net:b=1
  fence 0, waits false
> queue small NORMAL 1h net:b=1
  fence 0, waits true
> queue urgent HIGH 1h net:a=50
  fence 0, waits true
> shares
  net:a: 60 of 100 Mbit/s in 1, 2 wait, preemptible
  net:b: 0 of 50 Mbit/s in 0, 2 wait
  big: [{net:a 60} {net:b 50}] NORMAL waits since 0s for 1h0m0s, renewed 0s
  copy: [{net:a 60}] LOW fence 2 since 0s for 15s, renewed 0s
  small: [{net:b 1}] NORMAL waits since 0s for 1h0m0s, renewed 0s
  urgent: [{net:a 50}] HIGH waits since 0s for 1h0m0s, renewed 0s
> wait 10s
> keepshare copy 2
> wait 10s
> tick
# The holder is silent. Granted by priority, then by arrival.
> wait 5s
> tick
  3 ALLOCATION_LOST {"allocation": "copy", "amounts": {"net:a": 60}, "cause": "expired", "fence": 2, "held_ms": 25000, "holder": "hcopy", "priority": "LOW"}
  4 ALLOCATION_GRANTED {"allocation": "urgent", "amounts": {"net:a": 50}, "fence": 4, "holder": "hurgent", "priority": "HIGH", "risen_to": "HIGH", "waited_ms": 25000}
> keepshare copy 2
  lost [0]
> free urgent
  fence 0, waits false
  5 ALLOCATION_RELEASED {"allocation": "urgent", "amounts": {"net:a": 50}, "fence": 4, "held_ms": 0, "holder": "hurgent", "priority": "HIGH"}
  6 ALLOCATION_GRANTED {"allocation": "big", "amounts": {"net:a": 60, "net:b": 50}, "fence": 6, "holder": "hbig", "priority": "NORMAL", "risen_to": "NORMAL", "waited_ms": 25000}
> shares
  net:a: 60 of 100 Mbit/s in 1, 0 wait, preemptible
  net:b: 50 of 50 Mbit/s in 1, 1 wait
  big: [{net:a 60} {net:b 50}] NORMAL fence 6 since 25s for 1h0m0s, renewed 0s
  small: [{net:b 1}] NORMAL waits since 0s for 1h0m0s, renewed 0s
> free big
  fence 0, waits false
  7 ALLOCATION_RELEASED {"allocation": "big", "amounts": {"net:a": 60, "net:b": 50}, "fence": 6, "held_ms": 0, "holder": "hbig", "priority": "NORMAL"}
  8 ALLOCATION_GRANTED {"allocation": "small", "amounts": {"net:b": 1}, "fence": 8, "holder": "hsmall", "priority": "NORMAL", "risen_to": "NORMAL", "waited_ms": 25000}
> shares
  net:a: 0 of 100 Mbit/s in 0, 0 wait, preemptible
  net:b: 1 of 50 Mbit/s in 1, 0 wait
  small: [{net:b 1}] NORMAL fence 8 since 25s for 1h0m0s, renewed 0s
> free small
  fence 0, waits false
  9 ALLOCATION_RELEASED {"allocation": "small", "amounts": {"net:b": 1}, "fence": 8, "held_ms": 0, "holder": "hsmall", "priority": "NORMAL"}
# A waiting request rises, and is granted as what it has risen to.
> allocate first NORMAL 1h net:b=50
  fence 10, waits false
  10 ALLOCATION_GRANTED {"allocation": "first", "amounts": {"net:b": 50}, "fence": 10, "holder": "hfirst", "priority": "NORMAL", "risen_to": "NORMAL", "waited_ms": 0}
> queue late LOW 1h net:b=50
  fence 0, waits true
> wait 61s
> tick
> queue later NORMAL 1h net:b=50
  fence 0, waits true
> free first
  fence 0, waits false
  11 ALLOCATION_RELEASED {"allocation": "first", "amounts": {"net:b": 50}, "fence": 10, "held_ms": 61000, "holder": "hfirst", "priority": "NORMAL"}
  12 ALLOCATION_GRANTED {"allocation": "late", "amounts": {"net:b": 50}, "fence": 12, "holder": "hlate", "priority": "LOW", "risen_to": "NORMAL", "waited_ms": 61000}
> shares
  net:a: 0 of 100 Mbit/s in 0, 0 wait, preemptible
  net:b: 50 of 50 Mbit/s in 1, 1 wait
  late: [{net:b 50}] LOW as NORMAL fence 12 since 1m26s for 1h0m0s, renewed 25s
  later: [{net:b 50}] NORMAL waits since 1m26s for 1h0m0s, renewed 1m26s
> free late
  fence 0, waits false
  13 ALLOCATION_RELEASED {"allocation": "late", "amounts": {"net:b": 50}, "fence": 12, "held_ms": 0, "holder": "hlate", "priority": "LOW"}
  14 ALLOCATION_GRANTED {"allocation": "later", "amounts": {"net:b": 50}, "fence": 14, "holder": "hlater", "priority": "NORMAL", "risen_to": "NORMAL", "waited_ms": 0}
> free later
  fence 0, waits false
  15 ALLOCATION_RELEASED {"allocation": "later", "amounts": {"net:b": 50}, "fence": 14, "held_ms": 0, "holder": "hlater", "priority": "NORMAL"}
# A CRITICAL request ends LOW allocations that never were more, the newest first, if the resource says so.
> allocate one LOW 1h net:a=30 net:b=10
  fence 16, waits false
  16 ALLOCATION_GRANTED {"allocation": "one", "amounts": {"net:a": 30, "net:b": 10}, "fence": 16, "holder": "hone", "priority": "LOW", "risen_to": "LOW", "waited_ms": 0}
> allocate two LOW 1h net:a=30
  fence 17, waits false
  17 ALLOCATION_GRANTED {"allocation": "two", "amounts": {"net:a": 30}, "fence": 17, "holder": "htwo", "priority": "LOW", "risen_to": "LOW", "waited_ms": 0}
> allocate three NORMAL 1h net:a=30
  fence 18, waits false
  18 ALLOCATION_GRANTED {"allocation": "three", "amounts": {"net:a": 30}, "fence": 18, "holder": "hthree", "priority": "NORMAL", "risen_to": "NORMAL", "waited_ms": 0}
> allocate critical CRITICAL 1h net:a=100
  fence 0, waits false
> allocate critical CRITICAL 1h net:a=50
  fence 21, waits false
  19 JOB_PREEMPTED {"allocation": "two", "amounts": {"net:a": 30}, "by": "critical", "by_holder": "hcritical", "capacity": 100, "fence": 17, "granted": 90, "held_ms": 0, "holder": "htwo", "priority": "LOW", "resource": "net:a", "wanted": 50}
  20 JOB_PREEMPTED {"allocation": "one", "amounts": {"net:a": 30, "net:b": 10}, "by": "critical", "by_holder": "hcritical", "capacity": 100, "fence": 16, "granted": 60, "held_ms": 0, "holder": "hone", "priority": "LOW", "resource": "net:a", "wanted": 50}
  21 ALLOCATION_GRANTED {"allocation": "critical", "amounts": {"net:a": 50}, "fence": 21, "holder": "hcritical", "priority": "CRITICAL", "risen_to": "CRITICAL", "waited_ms": 0}
> allocate critical2 CRITICAL 1h net:b=45
  fence 22, waits false
  22 ALLOCATION_GRANTED {"allocation": "critical2", "amounts": {"net:b": 45}, "fence": 22, "holder": "hcritical2", "priority": "CRITICAL", "risen_to": "CRITICAL", "waited_ms": 0}
> shares
  net:a: 80 of 100 Mbit/s in 2, 0 wait, preemptible
  net:b: 45 of 50 Mbit/s in 1, 0 wait
  critical: [{net:a 50}] CRITICAL fence 21 since 1m26s for 1h0m0s, renewed 1m26s
  critical2: [{net:b 45}] CRITICAL fence 22 since 1m26s for 1h0m0s, renewed 1m26s
  three: [{net:a 30}] NORMAL fence 18 since 1m26s for 1h0m0s, renewed 1m26s
# A lower capacity takes nothing away, and grants nothing more until it fits.
> resource net:a 60 Mbit/s
> allocate four HIGH 1h net:a=10
  fence 0, waits false
> queue four HIGH 1h net:a=10
  fence 0, waits true
> queue five HIGH 1h net:a=55
  fence 0, waits true
> free critical
  fence 0, waits false
  23 ALLOCATION_RELEASED {"allocation": "critical", "amounts": {"net:a": 50}, "fence": 21, "held_ms": 0, "holder": "hcritical", "priority": "CRITICAL"}
  24 ALLOCATION_GRANTED {"allocation": "four", "amounts": {"net:a": 10}, "fence": 24, "holder": "hfour", "priority": "HIGH", "risen_to": "HIGH", "waited_ms": 0}
> resource net:a 50 Mbit/s
> free three
  fence 0, waits false
  25 ALLOCATION_RELEASED {"allocation": "three", "amounts": {"net:a": 30}, "fence": 18, "held_ms": 0, "holder": "hthree", "priority": "NORMAL"}
> shares
  net:a: 10 of 50 Mbit/s in 1, 0 wait
  net:b: 45 of 50 Mbit/s in 1, 0 wait
  critical2: [{net:b 45}] CRITICAL fence 22 since 1m26s for 1h0m0s, renewed 1m26s
  four: [{net:a 10}] HIGH fence 24 since 1m26s for 1h0m0s, renewed 1m26s
> queue five HIGH 1h net:a=55
  conflict: 55 of net:a, which has a capacity of 50
> noresource net:a
  conflict: net:a is in use: 1 allocations granted, 0 waiting
> resource net:a 0 Mbit/s
> free four
  fence 0, waits false
  26 ALLOCATION_RELEASED {"allocation": "four", "amounts": {"net:a": 10}, "fence": 24, "held_ms": 0, "holder": "hfour", "priority": "HIGH"}
> noresource net:a
> noresource net:a
  not_found: there is no resource "net:a"
> free one
  fence 0, waits false
# Time without a leader, and a step of the clock, end nothing.
> allocate copy HIGH 5s net:b=5
  fence 27, waits false
  27 ALLOCATION_GRANTED {"allocation": "copy", "amounts": {"net:b": 5}, "fence": 27, "holder": "hcopy", "priority": "HIGH", "risen_to": "HIGH", "waited_ms": 0}
> wait 1m
> leads n1 lost
  28 LEADER_LOST {"cause": "lost", "led_ms": 86000, "old_leader": "n1", "term": 2}
  29 LEADER_ELECTED {"cause": "lost", "leader_id": "n1", "leaderless_ms": 60000, "previous_leader": "n1", "term": 3}
> tick
> wait 4s
> step 2m
> wait 2m
> tick
> restart
> shares
  net:b: 50 of 50 Mbit/s in 2, 0 wait
  copy: [{net:b 5}] HIGH fence 27 since 1m26s for 5s, renewed 1m26s
  critical2: [{net:b 45}] CRITICAL fence 22 since 1m26s for 1h0m0s, renewed 1m26s
> wait 1s
> tick
  30 ALLOCATION_LOST {"allocation": "copy", "amounts": {"net:b": 5}, "cause": "expired", "fence": 27, "held_ms": 185000, "holder": "hcopy", "priority": "HIGH"}
# What is refused, and why.
> resource net:b 50 Mbit/s
> allocate x NORMAL 1s net:b=1
  invalid: a TTL of 1s
> allocate x NORMAL 25h net:b=1
  invalid: a TTL of 25h0m0s
> allocate x URGENT 1h net:b=1
  invalid: priority 0
> allocate x NORMAL 1h
  invalid: 0 amounts
> allocate x NORMAL 1h net:b=0
  invalid: 0 of "net:b", at place 0
> allocate x NORMAL 1h net:b=1 net:b=1
  invalid: 1 of "net:b", at place 1
> allocate x NORMAL 1h net:c=1
  not_found: there is no resource "net:c"
> allocate x NORMAL 1h net:b=51
  conflict: 51 of net:b, which has a capacity of 50
> set allocations.max 1
  1
> allocate x NORMAL 1h net:b=1
  overloaded: 1 allocations are granted or wait, which is the limit
> allocate y NORMAL 1h net:b=1
  overloaded: 1 allocations are granted or wait, which is the limit
> set allocations.resources_max 1
  1
> resource net:c 1 Mbit/s
  overloaded: 1 resources are declared, which is the limit
> due
  5m31s
# What wants more than a capacity that was lowered holds up nobody in the queues of other resources.
> set allocations.max 20
  20
> set allocations.resources_max 20
  20
> resource net:x 10 Mbit/s
> resource net:y 10 Mbit/s
> allocate x1 HIGH 1h net:x=10
  fence 31, waits false
  31 ALLOCATION_GRANTED {"allocation": "x1", "amounts": {"net:x": 10}, "fence": 31, "holder": "hx1", "priority": "HIGH", "risen_to": "HIGH", "waited_ms": 0}
> queue x2 HIGH 1h net:x=1
  fence 0, waits true
> queue x3 NORMAL 1h net:x=6 net:y=6
  fence 0, waits true
> queue y1 NORMAL 1h net:y=6
  fence 0, waits true
> resource net:x 2 Mbit/s
  32 ALLOCATION_GRANTED {"allocation": "y1", "amounts": {"net:y": 6}, "fence": 32, "holder": "hy1", "priority": "NORMAL", "risen_to": "NORMAL", "waited_ms": 0}
> shares
  net:b: 45 of 50 Mbit/s in 1, 0 wait
  net:x: 10 of 2 Mbit/s in 1, 1 wait
  net:y: 6 of 10 Mbit/s in 1, 0 wait
  critical2: [{net:b 45}] CRITICAL fence 22 since 1m26s for 1h0m0s, renewed 1m26s
  x1: [{net:x 10}] HIGH fence 31 since 4m31s for 1h0m0s, renewed 4m31s
  x2: [{net:x 1}] HIGH waits since 4m31s for 1h0m0s, renewed 4m31s
  y1: [{net:y 6}] NORMAL fence 32 since 4m31s for 1h0m0s, renewed 4m31s
# What waits within a call is renewed without being made again.
> prolongshare x2 net:x=1
  fence 0, waits true
> free x2
  fence 0, waits false
> prolongshare x2 net:x=1
  fence 0, waits false
> prolongshare x1 net:x=10
  fence 31, waits false
> prolongshare gone net:x=6
  conflict: 6 of net:x, which has a capacity of 2
> shares
  net:b: 45 of 50 Mbit/s in 1, 0 wait
  net:x: 10 of 2 Mbit/s in 1, 0 wait
  net:y: 6 of 10 Mbit/s in 1, 0 wait
  critical2: [{net:b 45}] CRITICAL fence 22 since 1m26s for 1h0m0s, renewed 1m26s
  x1: [{net:x 10}] HIGH fence 31 since 4m31s for 1h0m0s, renewed 4m31s
  y1: [{net:y 6}] NORMAL fence 32 since 4m31s for 1h0m0s, renewed 4m31s
