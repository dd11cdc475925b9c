#!/bin/sh
# After the files are gone. Only a purge takes the data: apt purge, or dpkg --purge.
set -e
root=${DPKG_ROOT:-}
if [ -z "$root" ] && [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
if [ "$1" = purge ]; then
  rm -rf "$root/var/lib/ringlog" "$root/etc/ringlog"
  if [ -z "$root" ] && getent passwd ringlog >/dev/null 2>&1; then
    userdel ringlog
  fi
fi
