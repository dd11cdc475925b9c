# Asked every 500 ms; three misses are too many.
> detector 500ms 3
> look 0s
  reachable false, steady false, last answer never
> answer 1s
> look 1s
  reachable true, steady false, last answer 1s
> look 2499ms
  reachable true, steady false, last answer 1s
> look 2500ms
  reachable false, steady false, last answer 1s
# Steady is who answers for a while without a silence.
> answer 3s
> look 3s
  reachable true, steady false, last answer 3s
> answer 3500ms
> look 3500ms
  reachable true, steady false, last answer 3.5s
> answer 4s
> look 4s
  reachable true, steady true, last answer 4s
# One miss is no silence, three are: it has to earn its steadiness again.
> answer 5s
> look 5s
  reachable true, steady true, last answer 5s
> answer 6500ms
> look 6500ms
  reachable true, steady false, last answer 6.5s
> answer 7s
> look 7s
  reachable true, steady false, last answer 7s
> answer 7500ms
> look 7500ms
  reachable true, steady true, last answer 7.5s
> look 9s
  reachable false, steady false, last answer 7.5s
