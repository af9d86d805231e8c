#!/usr/bin/env bash
# Makes twelve things wrong on this machine, one at a time, has `niwaki doctor` name each, and undoes them. Needs root on Linux, loop devices
# and cgroups of version 1 or 2 for the slow disk.
#
#   scripts/doctor-conditions.sh
#
#   NIWAKI   the binary (default: a release build)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
niwaki="${NIWAKI:-$CARGO_TARGET_DIR/release/niwaki}"
[ -x "$niwaki" ] || cargo build --release -p niwaki-node
folder="$(mktemp -d)"
named=0
missed=0
undo=()
clean() {
  local number
  for ((number = ${#undo[@]} - 1; number >= 0; number--)); do eval "${undo[number]}" || true; done
  undo=()
}
trap 'clean; rm -rf "$folder"' EXIT

doctor() {
  (
    ulimit -n "${files:-$(ulimit -n)}"
    "$niwaki" --network dev --p2p-enabled=false "$@" doctor --disk-seconds "${seconds:-0}" --ntp-server "${ntp:-none}"
  ) || true
}
# expect TITLE PATTERN [flags of the node]
expect() {
  local title="$1" pattern="$2"
  shift 2
  if doctor "$@" | grep -qE "$pattern"; then
    echo "named   $title"
    named=$((named + 1))
  else
    echo "MISSED  $title"
    missed=$((missed + 1))
    doctor "$@"
  fi
  clean
}
data=(--data-path "$folder/data")
mkdir "$folder/data"

truncate -s 64M "$folder/swap"
chmod 600 "$folder/swap"
dd if=/dev/zero of="$folder/swap" bs=1M count=64 status=none
mkswap "$folder/swap" > /dev/null
swapon "$folder/swap" && undo+=("swapoff '$folder/swap'")
expect "swap that is on" "warn +swap +63 MiB" "${data[@]}"

mkdir "$folder/memory"
mount -t tmpfs tmpfs "$folder/memory" && undo+=("umount '$folder/memory'")
expect "a data path in memory" "FAIL +file system +tmpfs" --data-path "$folder/memory/data"

truncate -s 1G "$folder/disk"
mkfs.ext4 -q "$folder/disk"
mkdir "$folder/small"
mount -o loop "$folder/disk" "$folder/small" && undo+=("umount '$folder/small'")
expect "little space" "FAIL +free space +0 of 0 GiB" --data-path "$folder/small/data"

mount -o loop,ro "$folder/disk" "$folder/small" && undo+=("umount '$folder/small'")
expect "a file system that is read-only" "FAIL +file system.*read-only" --data-path "$folder/small/data"

openssl rand -hex 32 > "$folder/jwt.hex"
chmod 644 "$folder/jwt.hex"
expect "a secret that all can read" "warn +engine secret.*644" "${data[@]}" --engine-rpc-enabled --engine-jwt-secret "$folder/jwt.hex"

echo none > "$folder/none.hex"
expect "a secret that is none" "FAIL +engine secret" "${data[@]}" --engine-rpc-enabled --engine-jwt-secret "$folder/none.hex"

python3 -m http.server --bind 127.0.0.1 18545 > /dev/null 2>&1 &
undo+=("kill $!")
sleep 1
expect "a port that is taken" "FAIL +ports.*--rpc-http-port" "${data[@]}" --rpc-http-enabled --rpc-http-port 18545

expect "a budget above the machine" "FAIL +memory" "${data[@]}" --memory-budget 4000G
files=300 expect "a limit of open files" "FAIL +open files +300" "${data[@]}"

python3 - <<'PY' > /dev/null 2>&1 &
import socket, struct, time
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("127.0.0.1", 10123))
while True:
    request, address = server.recvfrom(48)
    now = struct.pack(">Q", int((time.time() + 2208988803) * 2**32))
    server.sendto(struct.pack(">BBBb", 0x24, 2, 6, -20) + bytes(20) + request[40:48] + now + now, address)
PY
undo+=("kill $!")
sleep 1
ntp=127.0.0.1:10123 expect "a clock that is 3 s off" "FAIL +clock +\+[23][0-9]{3} ms" "${data[@]}"

for _ in $(seq "$(nproc)"); do
  sh -c 'while :; do :; done' &
  undo+=("kill $!")
done
expect "other programs that take the processor" "warn +other programs" "${data[@]}"

device="$(stat -c '%Hd:%Ld' "$folder")"
if [ -d /sys/fs/cgroup/blkio ]; then
  group=/sys/fs/cgroup/blkio/doctor
  mkdir -p "$group"
  echo "$device 500" > "$group/blkio.throttle.read_iops_device"
else
  group=/sys/fs/cgroup/doctor
  mkdir -p "$group"
  echo "$device riops=500" > "$group/io.max"
fi
undo+=("echo $$ > $(dirname "$group")/cgroup.procs; rmdir '$group'")
echo $$ > "$group/cgroup.procs"
seconds=2 expect "a slow disk" "FAIL +disk speed" "${data[@]}"

echo "$named of $((named + missed)) named"
[ "$missed" -eq 0 ]
