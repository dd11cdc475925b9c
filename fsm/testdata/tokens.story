> voters n1
> leads n1
  1 LEADER_ELECTED {"cause": "bootstrap", "leader_id": "n1", "term": 2}
> member n1 10
> set tokens.max 2
  2
> token trainer 01 a subscriber,publisher TRAINING_* trainer-* 0s
  trainer 01, roles ["subscriber" "publisher"], types ["TRAINING_*"], cursors ["trainer-*"], secret a
# The same call again, whose answer was lost, changes nothing.
> token trainer 01 a subscriber,publisher TRAINING_* trainer-* 0s
  trainer 01, roles ["subscriber" "publisher"], types ["TRAINING_*"], cursors ["trainer-*"], secret a
> token trainer 02 b monitor - - 0s
  exists: there is a token "trainer"
> token probe 01 b monitor - - 0s
  exists: another token has that id
> token probe 02 b monitor - - 1h
  probe 02, roles ["monitor"], types [], cursors [], secret b, expires 1h0m0s
> token more 03 c admin - - 0s
  overloaded: there are 2 tokens, which is the limit
# A rotation keeps the secret before for its grace, and no third one.
> rotate trainer b 10m
  trainer 01, roles ["subscriber" "publisher"], types ["TRAINING_*"], cursors ["trainer-*"], secret b, a until 10m0s
> rotate trainer b 10m
  trainer 01, roles ["subscriber" "publisher"], types ["TRAINING_*"], cursors ["trainer-*"], secret b, a until 10m0s
> rotate trainer c 1m
  trainer 01, roles ["subscriber" "publisher"], types ["TRAINING_*"], cursors ["trainer-*"], secret c, b until 1m0s
> rotate trainer d 0s
  trainer 01, roles ["subscriber" "publisher"], types ["TRAINING_*"], cursors ["trainer-*"], secret d
> rotate nobody d 0s
  not_found: there is no token "nobody"
> rotate trainer e 9999h
  invalid: a grace of 9999h0m0s
> restart
# One that has expired stays until it is revoked.
> wait 2h
> token probe 04 d monitor - - 1h
  exists: there is a token "probe"
> notoken probe
  probe 02, roles ["monitor"], types [], cursors [], secret b, expires 1h0m0s
> notoken probe
  not_found: there is no token "probe"
> token probe 04 d monitor - - 999999h
  invalid: in 999999h0m0s
> token probe 04 d monitor - - -1s
  invalid: in -1s
> token probe 04 d a,b,c,d,e,f,g,h,i - - 0s
  invalid: 9 of them
> token probe 04 d monitor - - 1h
  probe 04, roles ["monitor"], types [], cursors [], secret d, expires 3h0m0s
> restart
> notoken trainer
  trainer 01, roles ["subscriber" "publisher"], types ["TRAINING_*"], cursors ["trainer-*"], secret d
