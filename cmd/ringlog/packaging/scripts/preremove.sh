#!/bin/sh
# Before the files go. An upgrade leaves the node running: its operator restarts one node after the other.
set -e
case "$1" in
remove | 0)
  if [ -z "${DPKG_ROOT:-}" ] && [ -d /run/systemd/system ]; then
    systemctl disable --now ringlog.service
  fi
  ;;
esac
