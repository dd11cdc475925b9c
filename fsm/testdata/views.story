> voters n1
> leads n1
  1 LEADER_ELECTED {"cause": "bootstrap", "leader_id": "n1", "term": 2}
> member n1 10
> set views.max 2
  2
> publish 1
  at 2
  2 TRAINING_COMPLETED {"n": 1}
# A view begins with the log, and what its rules report with the next event.
> view elo {"a":1} 0
  elo generation 1, since 1, emitted 2
> view elo {"a":1} 0
  elo generation 1, since 1, emitted 2
# It is refused if another one was defined since its declaration was checked.
> view load {"b":1} 0
  fenced: another view was defined while this one was checked
> view load {"b":1} 1
  load generation 2, since 1, emitted 2
> view more {"c":1} 2
  overloaded: 2 views are defined, which is the limit
> publish 2
  at 3
  3 TRAINING_COMPLETED {"n": 2}
> publish 3
  at 4
  4 TRAINING_COMPLETED {"n": 3}
# Firings are published once, in order, by whoever proposes them.
> emit elo 1 2 3 10 11
  at 5 6
  5 TRAINING_COMPLETED {"n": 10}
  6 TRAINING_COMPLETED {"n": 11}
> emit elo 1 2 3 10 11
  fenced: firings of "elo" after 2, which were published up to 3
> emit elo 1 3 4 12
  at 7
  7 TRAINING_COMPLETED {"n": 12}
> emit elo 7 4 5 13
  fenced: generation 7 of "elo", which has 1
> emit elo 1 4 99 13
  invalid: firings from 4 to 99 of a log that ends at 7
> emit nothing 1 4 5 13
  not_found: there is no view "nothing"
> restart
> emit elo 1 3 4 12
  fenced: firings of "elo" after 3, which were published up to 4
# What cannot be published is passed over.
> publish 4
  at 8
  8 TRAINING_COMPLETED {"n": 4}
> skip elo 1 4 5
  elo generation 1, since 1, emitted 5
> skip elo 1 4 5
  fenced: firings of "elo" after 4, which were published up to 5
> skip load 2 2 3
  load generation 2, since 1, emitted 3
# Another declaration is another generation, which folds what the log still has.
> trim 3
  first 3 removed 2
  the log begins at 3
> view elo {"a":2} 2
  elo generation 3, since 3, emitted 8
> emit elo 1 5 6 14
  fenced: generation 1 of "elo", which has 3
> restart
> noview load
  load generation 2, since 1, emitted 3
> noview load
  not_found: there is no view "load"
> view load {"b":1} 3
  load generation 4, since 3, emitted 8
