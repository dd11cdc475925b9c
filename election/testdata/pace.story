# A compaction leaves 1000 entries. At risk is who trails by more than a quarter of that
# and lags further; by less than an eighth nobody is.
> pace 1000
> member 0s 0 100
> member 1s 0 200
# A quarter, but nothing is known of rates yet.
> member 1500ms 0 300
> member 2s 0 300
  at risk true, trailing 300, left 700, rate 0, log 100, truncated in 7s
# It follows as fast as the log grows from here on.
> member 3s 100 400
> member 8s 600 900
> member 12s 1000 1300
> member 20s 1790 2040
# Below a quarter, above an eighth: still at risk, then no longer.
> member 21s 1900 2100
> member 22s 2000 2100
  at risk false, trailing 100, left 900, rate 0, log 0, truncated in 0s
# Down by more than anything left, and it stands still.
> member 40s 2000 3200
  at risk true, trailing 1200, left 0, rate 0, log 61, truncated in 0s
# It restored a snapshot, or lost its folder: rates are not negative.
> member 41s 3200 3200
  at risk false, trailing 0, left 1000, rate 0, log 0, truncated in 0s
> member 45s 0 4000
  at risk true, trailing 4000, left 0, rate 0, log 82, truncated in 0s
