# The feature level follows the slowest member and never falls.
> leads n1
  1 LEADER_ELECTED {"cause": "bootstrap", "leader_id": "n1", "term": 2}
> member n1 2
> member n2 1
> member n2 2
> set no.such 1
  not_found: there is no setting "no.such"
> set dedup.window 1
  invalid: dedup.window: "1" is not a duration from 1s to 24h, such as 90s or 72h
> commit nobody 1 1
  not_found: there is no cursor "nobody"
> seek nobody 1
  not_found: there is no cursor "nobody"
