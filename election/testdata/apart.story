# Two outages, and a leader for 700 ms between them. Where the log has entries of that leader
# beyond its first, a majority had it, and there were two outages, though each voter saw one.
> voters 0s n1 n2 n3
> term 0s 2 n1
> term 36300ms 3 n2 n1 0s 29900ms
> term 42s 4 n1 n2 36300ms 37s decided
> journals n1:lost:2:30s:43s:41s n2:lost:2:30s:43s:41s n3:lost:2:30s:43s:41s n2:led:3:36300ms:37s n1:led:4:42s:44s
  QUORUM_LOST 1 from 30s to 36.3s, seen by [n1 n2 n3], down <nil>: unreachable
  QUORUM_RECOVERY_STARTED {"incident":1,"recovery_ms":0,"started_at":"2026-01-05T10:00:36.3Z"}
  QUORUM_LOST 2 from 37s to 42s, seen by [n1 n2 n3], down <nil>: unreachable
  QUORUM_RECOVERY_STARTED {"incident":2,"recovery_ms":1000,"started_at":"2026-01-05T10:00:41Z"}
# A leader of the same time of which the log has one entry may have had nobody else.
> term 76300ms 5 n2 n1 42s 69900ms
> term 82s 6 n1 n2 76300ms 77s
> journals n1:lost:4:70s:83s:81s n2:lost:4:70s:83s:81s n2:led:5:76300ms:77s n1:led:6:82s:84s
  QUORUM_LOST 3 from 1m10s to 1m22s, seen by [n1 n2], down <nil>: unreachable
  QUORUM_RECOVERY_STARTED {"incident":3,"recovery_ms":1000,"started_at":"2026-01-05T10:01:21Z"}
# The leader between two outages reported one of before by itself, and led on.
> term 110s 7 n2 n1 82s 99s
> journals n1:lost:6:100s:111s n2:lost:6:100s:111s n2:led:7:110s:110100ms
  QUORUM_LOST 4 from 1m40s to 1m50s, seen by [n1 n2], down <nil>: unreachable
> term 121s 8 n3 n2 110s 110500ms decided
> journals n1:lost:8:110500ms:122s n2:lost:8:110500ms:122s n2:led:7:110s:110500ms n3:led:8:121s:123s
  QUORUM_LOST 5 from 1m50.5s to 2m1s, seen by [n1 n2], down <nil>: unreachable
# An outage that is proven for less than a second, beside a long one, is none.
> term 160s 9 n1 n3 121s 150s
> term 161s 10 n2 n1 160s 160400ms decided
> journals n1:lost:10:150s:162s n2:lost:10:150s:162s n2:led:10:161s:163s
  QUORUM_LOST 6 from 2m30s to 2m40s, seen by [n1 n2], down <nil>: unreachable
