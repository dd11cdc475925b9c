# Three voters: two of them cut off from everybody prove an outage. It lasts until somebody
# leads again; whoever waited only for a leader did not see the majority out of reach.
> voters 0s n1 n2 n3
> term 0s 2 n1
> term 30s 3 n2 n1 0s 19s
> journals n1:lost:2:20s:32s:29s n2:lost:2:20s:32s:29s n2:led:3:31s:33s
  QUORUM_LOST 1 from 20s to 31s, seen by [n1 n2], down <nil>: unreachable
  QUORUM_RECOVERY_STARTED {"incident":1,"recovery_ms":2000,"started_at":"2026-01-05T10:00:29Z"}
# The same records again emit nothing. The third one comes later, with a clock that differs.
> journals n1:lost:2:20s:32s:29s n2:lost:2:20s:32s:29s n2:led:3:31s:40s
> journals n3:lost:1:19800ms:32500ms n2:led:3:31s:41s
  QUORUM_OUTAGE_VIEW n3, incident 1
# One alone is no outage, whatever the others did at other times.
> journals n3:lost:3:50s:60s n2:led:3:31s:61s
  QUORUM_OUTAGE_VIEW n3, incident <nil>
> journals n1:lost:4:70s:80s n3:lost:5:90s:100s n2:led:3:31s:101s
  QUORUM_OUTAGE_VIEW n1, incident <nil>
  QUORUM_OUTAGE_VIEW n3, incident <nil>
# They looked away for less than a second at the same time: a difference of clocks.
> term 131s 4 n1 n2 31s 120s
> journals n1:lost:6:121s:125s n3:lost:7:124500ms:130s n1:led:4:131s:132s
  QUORUM_OUTAGE_VIEW n1, incident <nil>
  QUORUM_OUTAGE_VIEW n3, incident <nil>
# Nobody led, for whatever reason, and enough answered: two that waited for too long.
> term 151s 5 n2 n1 131s 140s
> journals n1:lost:8:140s:152s:no_leader n3:lost:9:140s:152s:no_leader n2:led:5:151s:153s
  QUORUM_LOST 2 from 2m20s to 2m31s, seen by [n1 n3], down <nil>: no_leader
# Two saw a majority again at once, and elected somebody a moment later.
> term 164s 6 n2 n2 151s 160s
> journals n1:lost:10:160s:165s:160500ms n3:lost:11:160s:165s:160500ms n2:led:6:164s:167s
  QUORUM_OUTAGE_VIEW n1, incident <nil>
  QUORUM_OUTAGE_VIEW n3, incident <nil>
# One did not run, another stood still, and only the third saw an outage.
> term 190s 7 n3 n2 164s 170s
> journals n1:lost:12:170s:191s n2:up:188s:171s n3:stalled:12:172s:185s n3:led:7:190s:192s
  QUORUM_LOST 3 from 2m51s to 3m10s, seen by [n1], down [n2]: unreachable
# Proof that comes in pieces: a view, then that of another, then one more piece of the
# same outage. It is reported once.
> term 230s 8 n1 n3 190s 199s
> journals n1:lost:14:200s:231s n1:led:8:230s:232s
  QUORUM_OUTAGE_VIEW n1, incident <nil>
> journals n2:lost:4:201s:210s n1:led:8:230s:233s
  QUORUM_LOST 4 from 3m21s to 3m50s, seen by [n1 n2], down <nil>: unreachable
> journals n3:lost:14:220s:231s n1:led:8:230s:234s
  QUORUM_OUTAGE_VIEW n3, incident 4
# A leader that lasted parts two outages, one that did not, or that the log does not know,
# is part of one.
> term 251s 9 n2 n1 230s 240s
> term 259s 10 n3 n2 251s 251500ms
> journals n1:lost:16:240s:260s n2:lost:6:240s:260s n3:led:9:251s:251600ms n3:led:10:259s:262s
  QUORUM_LOST 5 from 4m0s to 4m19s, seen by [n1 n2], down <nil>: unreachable
> term 281s 11 n2 n3 259s 270s
> term 289s 12 n3 n2 281s 283s
> journals n1:lost:18:270s:290s n2:lost:8:270s:290s n1:led:11:281s:283s n3:led:12:289s:292s
  QUORUM_LOST 6 from 4m30s to 4m41s, seen by [n1 n2], down <nil>: unreachable
  QUORUM_LOST 7 from 4m43s to 4m49s, seen by [n1 n2], down <nil>: unreachable
# A leader's own word on its lease says when the outage began, though it followed late.
> term 320s 13 n3 n3 289s 303s
> journals n1:lost:20:300s:321s n2:lost:10:300s:321s n3:led:12:289s:304s n3:led:13:320s:322s
  QUORUM_LOST 8 from 5m4s to 5m20s, seen by [n1 n2], down <nil>: unreachable
> journals n3:lease_expired:16:299s:300s:12 n3:led:13:320s:323s
  LEADER_LEASE_EXPIRED {"expired_at":"2026-01-05T10:05:00Z","leader_id":"n3","quorum_contact_ms":1000,"term":12}
> term 350s 14 n3 n3 320s 323s
> journals n1:lost:22:330s:351s n2:lost:12:330s:351s n3:lease_expired:18:330s:330500ms:13 n3:led:13:320s:335s n3:led:14:350s:352s
  LEADER_LEASE_EXPIRED {"expired_at":"2026-01-05T10:05:30.5Z","leader_id":"n3","quorum_contact_ms":500,"term":13}
  QUORUM_LOST 9 from 5m30.5s to 5m50s, seen by [n1 n2], down <nil>: unreachable
# Both were in an outage of long ago: each is reported as what it was.
> journals n2:lost:14:21s:30s n3:lost:19:1000s:1010s n3:led:14:350s:1020s
  QUORUM_OUTAGE_VIEW n2, incident 1
  QUORUM_OUTAGE_VIEW n3, incident <nil>
# A majority in reach again and still no leader for long: the outage continued.
> term 1100s 15 n2 n3 350s 1059s
> journals n1:lost:24:1060s:1101s:1061s n2:lost:16:1060s:1101s:1061s n2:led:15:1100s:1102s
  QUORUM_LOST 10 from 17m40s to 18m20s, seen by [n1 n2], down <nil>: unreachable
  QUORUM_RECOVERY_STARTED {"incident":10,"recovery_ms":39000,"started_at":"2026-01-05T10:17:41Z"}
# Voters that were restarted twice report both times; their record of the newest start says
# nothing new.
> term 1130s 16 n1 n2 1100s 1110s
> journals n1:lost:26:1110s:1131s:1120s n2:down:18:1110s:1119s n2:down:19:1125s:1126s n2:up:1126s:1125s n3:down:20:1110s:1140s n1:led:16:1130s:1132s
  QUORUM_LOST 11 from 18m30s to 18m50s, seen by [n1], down [n2 n3]: unreachable
  QUORUM_RECOVERY_STARTED {"incident":11,"recovery_ms":10000,"started_at":"2026-01-05T10:18:40Z"}
> journals n2:up:1126s:1125s n3:up:1140s:1110s n1:led:16:1130s:1145s
# A leader that was cut off, and a voter that had the third and waited for a leader with it:
# a majority had each other.
> term 1160s 17 n3 n1 1130s 1150s
> journals n1:lost:28:1150s:1162s n2:lost:20:1151s:1161s:no_leader n3:led:17:1160s:1163s
  QUORUM_LOST 12 from 19m11s to 19m20s, seen by [n1 n2], down <nil>: no_leader
