#!/usr/bin/env bash
# Boots a clean Debian 12 with systemd in a container and runs the node there as its unit says: sandbox, readiness, watchdog, an upgrade while it
# runs, removal. Needs root, debootstrap, systemd-nspawn and a mirror.
#
#   scripts/unit-test.sh [MIRROR]
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
mirror="${1:-http://deb.debian.org/debian}"
folder="$(mktemp -d)"
root="$folder/root"
container="" init=""
stop() {
  [ -z "$init" ] || kill -KILL "$init" 2> /dev/null || true
  [ -z "$container" ] || kill "$container" 2> /dev/null || true
  wait
  rm -rf "$folder"
}
trap stop EXIT
say() { printf '\n== %s\n' "$*"; }
fail() {
  echo "$*" >&2
  inside journalctl -u niwaki --no-pager | tail -20 >&2
  exit 1
}
inside() { nsenter --target "$init" --mount --uts --ipc --net --pid -- /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive "$@"; }
value() { inside systemctl show --property "$1" --value niwaki; }
until_true() { # until_true SECONDS WHAT COMMAND..
  local seconds="$1" what="$2"
  shift 2
  for _ in $(seq $((seconds * 5))); do
    ! "$@" || return 0
    sleep 0.2
  done
  fail "$what: not within $seconds s"
}

say "a clean Debian 12 with systemd"
deb="$(scripts/package-deb.sh "$folder")"
debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus,adduser,libstdc++6 bookworm "$root" "$mirror" > "$folder/debootstrap.log"
cp "$deb" "$root/opt/niwaki.deb"
# Without a systemd of its own a machine has no place for the container's.
if [ ! -e /run/systemd/system ] && [ ! -e /sys/fs/cgroup/cgroup.controllers ] && ! mountpoint -q /sys/fs/cgroup/systemd; then
  mkdir -p /sys/fs/cgroup/systemd
  mount -t cgroup -o none,name=systemd cgroup /sys/fs/cgroup/systemd
fi
systemd-nspawn --quiet --boot --register=no --keep-unit --private-network --machine="niwaki-$$" --directory="$root" > "$folder/boot.log" 2>&1 &
container=$!
booted() {
  init="$(pgrep -P "$container" | head -1)"
  [ -n "$init" ] && inside systemctl is-active --quiet multi-user.target 2> /dev/null
}
until_true 60 "the boot" booted

say "install and start"
inside dpkg -i /opt/niwaki.deb > /dev/null
inside sed -i 's/^network = .*/network = "dev"/' /etc/niwaki/config.toml
inside systemctl start niwaki || fail "it does not start"
[ "$(value ActiveState) $(value SubState)" = "active running" ] || fail "it is $(value ActiveState)"
inside systemctl status niwaki --no-pager | sed -n '1,8p'
pid="$(value MainPID)"
status() { inside sed -n "s/^$1:[[:space:]]*//p" "/proc/$pid/status"; }
echo "user $(inside stat -c %U "/proc/$pid"), capabilities $(status CapEff), no new privileges $(status NoNewPrivs), system calls filtered $(status Seccomp)"
[ "$(inside stat -c %U "/proc/$pid") $(status CapEff) $(status NoNewPrivs) $(status Seccomp)" = "niwaki 0000000000000000 1 2" ]
inside nsenter --target "$pid" --mount -- sh -c '! touch /etc/x 2> /dev/null && ! touch /usr/x 2> /dev/null && touch /var/lib/niwaki/x && rm /var/lib/niwaki/x'
inside niwaki --data-path /var/lib/niwaki profile --seconds 1 --to /tmp/profile > /dev/null

say "it is killed, and started again"
inside sh -c "kill -KILL $pid"
again() { [ "$(value ActiveState)" = active ] && [ "$(value MainPID)" != "$pid" ]; }
until_true 30 "the restart" again
pid="$(value MainPID)"
say "it hangs, and the watchdog starts it again"
inside sh -c "kill -STOP $pid"
until_true 120 "the watchdog" again
pid="$(value MainPID)"
say "upgrade while it runs"
inside dpkg -i /opt/niwaki.deb > /dev/null
until_true 30 "the restart after the upgrade" again
inside journalctl -u niwaki --no-pager | grep -c 'everything is on disk'
say "remove while it runs, then purge"
inside dpkg -P niwaki > /dev/null
! inside systemctl is-active --quiet niwaki
[ ! -e "$root/var/lib/niwaki" ] && [ ! -e "$root/etc/niwaki" ] && [ ! -e "$root/usr/bin/niwaki" ]
echo "nothing is left"
