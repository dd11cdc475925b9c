> voters n1
> leads n1
  1 LEADER_ELECTED {"cause": "bootstrap", "leader_id": "n1", "term": 2}
> member n1 7
# The first one gets the role. The fence is the offset of the event that says so.
> acquire PROMOTION_LEADER a 15s
  held by a, fence 2, 0 wait, place 0
  2 ROLE_ACQUIRED {"cause": "free", "fence": 2, "holder": "a", "previous": "", "role": "PROMOTION_LEADER"}
> acquire PROMOTION_LEADER b 15s
  held by a, fence 2, 0 wait, place 0
> acquire PROMOTION_LEADER b 15s wait
  held by a, fence 2, 1 wait, place 1
> acquire PROMOTION_LEADER c 15s wait
  held by a, fence 2, 2 wait, place 2
> acquire PROMOTION_LEADER a 15s
  held by a, fence 2, 2 wait, place 0
> under PROMOTION_LEADER 2 1
  at 3
  3 TRAINING_COMPLETED {"n": 1}
> wait 10s
> renew PROMOTION_LEADER 2
> wait 5s
> tick
> wait 5s
> acquire PROMOTION_LEADER b 15s wait
  held by a, fence 2, 1 wait, place 1
> roles
  PROMOTION_LEADER: a since 0s with fence 2 for 15s, renewed 10s; b waits since 20s
# The holder is silent, and c as well. The role goes to b, and what a publishes under its fence is refused.
> wait 5s
> tick
  4 ROLE_LOST {"cause": "expired", "fence": 2, "holder": "a", "role": "PROMOTION_LEADER"}
  5 ROLE_ACQUIRED {"cause": "expired", "fence": 5, "holder": "b", "previous": "a", "role": "PROMOTION_LEADER"}
> roles
  PROMOTION_LEADER: b since 25s with fence 5 for 15s, renewed 20s
> under PROMOTION_LEADER 2 2
  fenced: the lease of PROMOTION_LEADER with fence 2 is over
> renew PROMOTION_LEADER 2
  lost [0]
> release PROMOTION_LEADER a
  held by b, fence 5, 0 wait, place 0
# A release hands the role over as well, and so does an operator.
> acquire PROMOTION_LEADER d 15s wait
  held by b, fence 5, 1 wait, place 1
> release PROMOTION_LEADER b
  held by d, fence 7, 0 wait, place 0
  6 ROLE_RELEASED {"fence": 5, "holder": "b", "role": "PROMOTION_LEADER"}
  7 ROLE_ACQUIRED {"cause": "released", "fence": 7, "holder": "d", "previous": "b", "role": "PROMOTION_LEADER"}
> acquire PROMOTION_LEADER e 15s wait
  held by d, fence 7, 1 wait, place 1
> revoke PROMOTION_LEADER 5
  fenced: the lease of PROMOTION_LEADER with fence 5 is over
> create cur 0
  committed 0 generation 0 gap 0-0
> open cur
  committed 0 generation 1 gap 0-0
> commitunder cur 1 1 PROMOTION_LEADER 7
  committed 1 generation 1 gap 0-0
> commitunder cur 1 1 PROMOTION_LEADER 2
  fenced: the lease of PROMOTION_LEADER with fence 2 is over
> revoke PROMOTION_LEADER 7
  held by e, fence 9, 0 wait, place 0
  8 ROLE_LOST {"cause": "revoked", "fence": 7, "holder": "d", "role": "PROMOTION_LEADER"}
  9 ROLE_ACQUIRED {"cause": "revoked", "fence": 9, "holder": "e", "previous": "d", "role": "PROMOTION_LEADER"}
> revoke PROMOTION_LEADER 7
  fenced: the lease of PROMOTION_LEADER with fence 7 is over
> release PROMOTION_LEADER e
  held by , fence 0, 0 wait, place 0
  10 ROLE_RELEASED {"fence": 9, "holder": "e", "role": "PROMOTION_LEADER"}
# A retry gets its first result, also when the lease is over; a refused request has used no number.
> acquire SYNC a 1h
  held by a, fence 11, 0 wait, place 0
  11 ROLE_ACQUIRED {"cause": "free", "fence": 11, "holder": "a", "previous": "", "role": "SYNC"}
> produceunder p 1 SYNC 7 5
  fenced: the lease of SYNC with fence 7 is over
> produceunder p 1 SYNC 11 5
  at 12
  12 TRAINING_COMPLETED {"n": 5}
> release SYNC a
  held by , fence 0, 0 wait, place 0
  13 ROLE_RELEASED {"fence": 11, "holder": "a", "role": "SYNC"}
> produceunder p 1 SYNC 11 5
  at 12 replayed
> produceunder p 2 SYNC 11 6
  fenced: the lease of SYNC with fence 11 is over
> produceunder p 2 SYNC 11 6
  fenced: the lease of SYNC with fence 11 is over
> produce p 2 6
  at 14
  14 TRAINING_COMPLETED {"n": 6}
# Time without a leader, and a step of the clock, take no role from anybody.
> acquire OTHER a 5s
  held by a, fence 15, 0 wait, place 0
  15 ROLE_ACQUIRED {"cause": "free", "fence": 15, "holder": "a", "previous": "", "role": "OTHER"}
> wait 1m
> leads n1 lost
  16 LEADER_LOST {"cause": "lost", "led_ms": 25000, "old_leader": "n1", "term": 2}
  17 LEADER_ELECTED {"cause": "lost", "leader_id": "n1", "leaderless_ms": 60000, "previous_leader": "n1", "term": 3}
> tick
> wait 2s
> step 2m
> wait 2m2s
> tick
> roles
  OTHER: a since 25s with fence 15 for 5s, renewed 25s
> wait 1s
> tick
  18 ROLE_LOST {"cause": "expired", "fence": 15, "holder": "a", "role": "OTHER"}
> acquire OTHER a 1s
  invalid: a TTL of 1s
> set roles.max 1
  1
> acquire OTHER a 5s
  held by a, fence 19, 0 wait, place 0
  19 ROLE_ACQUIRED {"cause": "free", "fence": 19, "holder": "a", "previous": "", "role": "OTHER"}
> acquire THIRD a 5s
  overloaded: 1 roles are held, which is the limit
> restart
> roles
  OTHER: a since 3m30s with fence 19 for 5s, renewed 3m30s
# The renewal of a claim makes none: one that was released stays so.
> acquire OTHER b 5s wait
  held by a, fence 19, 1 wait, place 1
> wait 4s
> prolong OTHER a
  held by a, fence 19, 1 wait, place 0
> prolong OTHER b
  held by a, fence 19, 1 wait, place 1
> release OTHER b
  held by a, fence 19, 0 wait, place 0
> prolong OTHER b
  held by a, fence 19, 0 wait, place 0
> prolong NOBODYS b
  held by , fence 0, 0 wait, place 0
> roles
  OTHER: a since 3m30s with fence 19 for 5s, renewed 3m34s
