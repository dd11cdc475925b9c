#!/usr/bin/env bash
# Measures what events, cursors, groups and dedup keys cost a node. It starts three voters on this machine,
# publishes, and reads their metrics and the size of one data folder after each step. It takes a few minutes.
#
#	integration/bench/capacity.sh ./ringlog [EVENTS]
#
# It needs curl, and ports 26110 to 26112 and 26120 to 26122. The nodes and their folder are removed at the end.
set -euo pipefail
ringlog=$(realpath "$1")
events=${2:-500000}
dir=$(mktemp -d)
export RINGLOG_ENDPOINTS=http://127.0.0.1:26110,http://127.0.0.1:26111,http://127.0.0.1:26112
url=${RINGLOG_ENDPOINTS%%,*}
"$ringlog" dev --data-dir "$dir/data" --http-port 26110 --raft-port 26120 >"$dir/log" 2>&1 &
nodes=$!
trap 'kill -TERM $nodes; wait $nodes || true; rm -rf "$dir"' EXIT
timeout 60 sh -c "until '$ringlog' check >/dev/null 2>&1; do sleep 0.2; done"
"$ringlog" settings set cursor.stall_after 0 >/dev/null # no events of the cluster's own beside those measured

# metric NAME prints the sum of a metric over the nodes.
metric() {
  for n in ${RINGLOG_ENDPOINTS//,/ }; do curl -sS --fail "$n/metrics"; done |
    awk -v name="$1" '$1 == name { sum += $2 } END { printf "%.3f\n", sum }'
}
# log prints the bytes of one node's log, which retention.bytes bounds; stored those of all its state's files.
log() { metric ringlog_log_bytes | awk '{ printf "%.0f\n", $1 / 3 }'; }
stored() { du -sb "$dir"/data/*1/state | awk '{ print $1 }'; }
resident() { metric process_resident_memory_bytes | awk '{ printf "%.0f\n", $1 / 3 }'; }
# settle waits until the files and the log do not change for three seconds: followers apply, Pebble compacts.
settle() {
  local same=0 last="" now
  while [ $same -lt 3 ]; do
    sleep 1
    now="$(stored) $(log)"
    if [ "$now" = "$last" ]; then same=$((same + 1)); else same=0; fi
    last=$now
  done
}
# per prints a difference divided by a count: per LABEL UNIT BEFORE AFTER COUNT.
per() { awk -v l="$1" -v u="$2" -v a="$3" -v b="$4" -v n="$5" 'BEGIN { printf "%-42s %10.1f %s\n", l, (b - a) / n, u }'; }

# publish LABEL EVENTS SIZE BATCH CALLERS
publish() {
  local bytes cpu
  bytes=$(log) cpu=$(metric process_cpu_seconds_total)
  "$ringlog" bench publish --yes --warmup 0 --events "$2" --size "$3" --batch "$4" --callers "$5" >>"$dir/bench" 2>&1
  settle
  per "$1: log" "bytes/event" "$bytes" "$(log)" "$2"
  per "$1: CPU of three nodes" "µs/event" "${cpu}e6" "$(metric process_cpu_seconds_total)e6" "$2"
}

echo "nproc $(nproc), $("$ringlog" version | head -1)"
settle
per "an idle node: memory" "MB" 0 "$(resident)" 1000000
publish "200 B, batches of 256" "$events" 200 256 8
per "a dedup key: memory" "bytes" 0 "$(metric ringlog_dedup_bytes)" "$(metric ringlog_dedup_keys)"
publish "2 kB, batches of 256" "$((events / 5))" 2048 256 8
per "files of the state for a byte of the log" "bytes" 0 "$(stored)" "$(log)"
publish "200 B, one event a request" "$((events / 25))" 200 1 1
publish "2 kB, one event a request" "$((events / 25))" 2048 1 1
per "a node after publishing: memory" "MB" 0 "$(resident)" 1000000

# create KIND COUNT makes that many with curl's ranges, eight requests at a time.
create() {
  local bytes
  bytes=$(stored)
  curl -sS --fail -Z --parallel-max 8 -o "$dir/answers" -X PUT "$url/v1/$1/$1-[1-$2]" \
    -H 'Content-Type: application/json' -d '{"from": "end", "filter": {"types": ["training.*"]}}' 2>"$dir/curl"
  settle
  per "$2 $1: disk" "bytes each" "$bytes" "$(stored)" "$2"
}
create cursors 9000
create groups 1000
cpu=$(metric process_cpu_seconds_total)
sleep 20
per "10 000 cursors and groups, no work: CPU" "ms/s a node" "${cpu}e3" "$(metric process_cpu_seconds_total)e3" 60
per "the same: memory" "MB" 0 "$(resident)" 1000000
