#!/bin/sh
# After the files are there. The service is not started: it has no configuration yet, or somebody runs an upgrade one
# node after the other. DPKG_ROOT is set where dpkg installs into another folder.
set -e
root=${DPKG_ROOT:-}
if command -v systemd-sysusers >/dev/null 2>&1; then
  systemd-sysusers ${root:+--root="$root"} ringlog.conf
elif command -v useradd >/dev/null 2>&1 && [ -z "$root" ]; then
  getent group ringlog >/dev/null || groupadd --system ringlog
  getent passwd ringlog >/dev/null ||
    useradd --system --gid ringlog --home-dir /var/lib/ringlog --shell /usr/sbin/nologin ringlog
fi
if command -v systemd-tmpfiles >/dev/null 2>&1; then
  systemd-tmpfiles ${root:+--root="$root"} --create ringlog.conf
fi
if [ -z "$root" ] && [ -d /run/systemd/system ]; then
  systemctl daemon-reload
fi
