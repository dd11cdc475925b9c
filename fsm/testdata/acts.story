> voters n1
> leads n1
  1 LEADER_ELECTED {"cause": "bootstrap", "leader_id": "n1", "term": 2}
> member n1 10
# An act is decided as its command is, and its event is of the same entry.
> act ada setting.set tokens.max 3 set tokens.max 3
  3
  2 ADMIN_ACTION {"action": "setting.set", "detail": "3", "outcome": "done", "principal": "ada", "target": "tokens.max"}
> act ada token.create trainer subscriber token trainer 01 a subscriber - - 0s
  trainer 01, roles ["subscriber"], types [], cursors [], secret a
  3 ADMIN_ACTION {"action": "token.create", "detail": "subscriber", "outcome": "done", "principal": "ada", "target": "trainer"}
# The same call again, whose answer was lost, is no other act.
> act ada token.create trainer subscriber token trainer 01 a subscriber - - 0s
  trainer 01, roles ["subscriber"], types [], cursors [], secret a
# One that is refused says why.
> act ada token.revoke nobody - notoken nobody
  not_found: there is no token "nobody"
  4 ADMIN_ACTION {"action": "token.revoke", "outcome": "refused", "principal": "ada", "reason": "not_found", "target": "nobody"}
> act ada cursor.delete trainer - remove trainer
  not_found: there is no cursor "trainer"
  5 ADMIN_ACTION {"action": "cursor.delete", "outcome": "refused", "principal": "ada", "reason": "not_found", "target": "trainer"}
> act root token.revoke trainer - notoken trainer
  trainer 01, roles ["subscriber"], types [], cursors [], secret a
  6 ADMIN_ACTION {"action": "token.revoke", "outcome": "done", "principal": "root", "target": "trainer"}
# A seek that is sent again by the same caller is no other act either.
> create reader 0
  committed 0 generation 0 gap 0-0
> act ada cursor.seek reader 3 seek reader 3 a
  committed 2 generation 0 gap 0-0
  7 ADMIN_ACTION {"action": "cursor.seek", "detail": "3", "outcome": "done", "principal": "ada", "target": "reader"}
> act ada cursor.seek reader 3 seek reader 3 a
  committed 2 generation 0 gap 0-0
> act ada cursor.seek reader 3 seek reader 3 b
  committed 2 generation 0 gap 0-0
  8 ADMIN_ACTION {"action": "cursor.seek", "detail": "3", "outcome": "done", "principal": "ada", "target": "reader"}
# What no entry does says that it begins, and if it has failed.
> acted root backup n1 started -
  9 ADMIN_ACTION {"action": "backup", "outcome": "started", "principal": "root", "target": "n1"}
> acted root member.remove n4 failed not_found
  10 ADMIN_ACTION {"action": "member.remove", "outcome": "failed", "principal": "root", "reason": "not_found", "target": "n4"}
> acted root backup n1 done -
  invalid: an act without a command that is "done"
> restart
> acted bob backup n1 started -
  11 ADMIN_ACTION {"action": "backup", "outcome": "started", "principal": "bob", "target": "n1"}
