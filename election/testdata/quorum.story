# Three voters; an answer counts for 1.5s, 5s without a leader are too long, 5s of grace
# after a start, and 1s of a majority with a leader end an outage.
> quorum 1500ms 5s 5s 1s
# While a cluster starts nothing is lost.
> see 1s - -
> see 2s - -
> see 3s 3s - leader
# One of two others is enough. A lost majority is reported when nobody can be reached for
# long enough, once, with the last moment at which there was one.
> see 4s 4s - leader
> see 5s 4s - leader
> see 5400ms 4s - leader
> see 5500ms 4s -
  lost since 4s unreachable
> see 6s 4s -
> see 7s 4s -
# It comes back, slips, and comes back: it is over after a second with a leader.
> see 8s 8s -
  regained since 8s
> see 9s 8s -
> see 9600ms 8s -
  slipped since 9.6s
> see 10s 10s -
  regained since 10s
> see 10500ms 10500ms - leader
> see 11s 11s -
> see 11500ms 11500ms - leader
> see 12s 12s 12s leader
> see 12400ms 12s 12s leader
> see 12500ms 12500ms 12500ms leader
  restored since 4s, regained 10s, until 11.5s
> see 13s 13s 13s leader
# Enough answer and still nobody leads: that takes longer. A short time without a leader
# is an election.
> see 14s 14s 14s
> see 15s 15s 15s
> see 16s 16s 16s leader
> see 17s 17s 17s
> see 18s 18s 18s
> see 19s 19s 19s
> see 20s 20s 20s
> see 20900ms 20900ms 20900ms
> see 21s 21s 21s
  lost since 16s no_leader
> see 22s 22s 22s leader
  regained since 22s
> see 23s 23s 23s leader
  restored since 16s, regained 22s, until 22s
# The process stood still: what it missed meanwhile is not the others' fault. They are
# given as long as ever to answer.
> see 24s 24s 24s leader
> see 40s 24s 24s
  stalled since 24s, until 40s
> see 41s 24s 24s
> see 41400ms 24s 24s
> see 41500ms 24s 24s
  lost since 24s unreachable
> see 42s 42s 42s leader
  regained since 42s
> see 43s 43s 43s leader
  restored since 24s, regained 42s, until 42s
# Nobody answers over HTTP, and raft has a leader: there is a majority, which that leader
# reaches. It is lost from when raft heard of the leader last.
> quorum 1500ms 5s 5s 1s
> see 1s 1s - leader@1s
> see 2s 1s - leader@1900ms
> see 3s 1s - leader@2900ms
> see 4s 1s -
> see 4300ms 1s -
> see 4400ms 1s -
  lost since 2.9s unreachable
> see 5s 1s - leader@5s
  regained since 5s
> see 6s 1s - leader@6s
  restored since 2.9s, regained 5s, until 5s
# A cluster that never forms is lost once the grace is over, since the start.
> quorum 1500ms 5s 5s 1s
> see 1s - -
> see 2s - -
> see 3s - -
> see 4s - -
> see 4900ms - -
> see 5s - -
  lost since 0s unreachable
# An outage that an earlier run of the process left open continues.
> quorum 1500ms 5s 5s 1s
> resume -20s
> see 1s - -
> see 2s 2s -
  regained since 2s
> see 3s 3s 3s leader
> see 4s 4s 4s leader
  restored since -20s, regained 2s, until 3s
# One in which a majority was in reach again before that run ended is not out of reach just because nobody has answered
# this run yet, but it is once the grace is over.
> quorum 1500ms 5s 5s 1s
> resume -20s -8s
> see 1s - -
> see 2s 2s -
> see 3s 3s 3s leader
> see 4s 4s 4s leader
  restored since -20s, regained -8s, until 3s
> quorum 1500ms 5s 5s 1s
> resume -20s -8s
> see 1s - -
> see 2s - -
> see 3s - -
> see 4s - -
> see 5s - -
  slipped since 5s
# Of five voters two others are needed; a single voter is its own majority.
> quorum 1500ms 5s 5s 1s
> see 1s 1s 1s - - leader
> see 2s 2s 1s - - leader
> see 2500ms 2500ms 1s - -
  lost since 1s unreachable
> quorum 1500ms 5s 5s 1s
> see 1s leader
> see 1500ms leader
