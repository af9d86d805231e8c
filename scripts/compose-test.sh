#!/usr/bin/env bash
# Starts the services of packaging/compose/qbft.yml without Docker: each in a network namespace with its address, in a root that has the libraries of
# the image and no shell, as the image's user. Needs root, iproute2, curl, python3 and, for the libraries, apt.
#
#   scripts/compose-test.sh
#
#   NIWAKI   the binary (default: a release build)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
niwaki="${NIWAKI:-$CARGO_TARGET_DIR/release/niwaki}"
compose=packaging/compose/qbft.yml
folder="$(mktemp -d)"
bridge=niwaki0
services=()
stop() {
  pkill -f -- "--genesis-file=/network/genesis.json" 2> /dev/null || true
  wait
  for service in "${services[@]}"; do ip netns del "niwaki-$service" 2> /dev/null || true; done
  ip link del "$bridge" 2> /dev/null || true
  rm -rf "$folder"
}
trap stop EXIT

# What gcr.io/distroless/cc has.
image="$folder/image"
mkdir -p "$folder/packages" "$image/data" "$image/usr/bin" "$image/etc"
chmod 755 "$folder" "$folder/packages"
(cd "$folder/packages" && apt-get download -qq libc6 libgcc-s1 libstdc++6 ca-certificates > /dev/null 2>&1)
for package in "$folder"/packages/*.deb; do dpkg-deb -x "$package" "$image"; done
install -m755 "$niwaki" "$image/usr/bin/niwaki"
chown 65532:65532 "$image/data"
"$niwaki" operator generate-blockchain-config --config-file packaging/compose/qbft.json --to "$image/network" --private-key-file-name key > /dev/null
packaging/compose/static-nodes.sh "$image/network"
chmod -R a+rX "$image/network"

ip link add "$bridge" type bridge
ip address add 172.30.7.1/24 dev "$bridge"
ip link set "$bridge" up
start() { # start SERVICE ADDRESS ARGUMENT..
  local service="$1" address="$2" namespace="niwaki-$1"
  shift 2
  cp -a "$image" "$folder/$service"
  ip netns add "$namespace"
  ip link add "ve-$service" type veth peer name eth0 netns "$namespace"
  ip link set "ve-$service" master "$bridge" up
  ip -n "$namespace" address add "$address/24" dev eth0
  ip -n "$namespace" link set eth0 up
  ip -n "$namespace" link set lo up
  ip netns exec "$namespace" env -i PATH="$PATH" NIWAKI_DATA_PATH=/data \
    chroot --userspec=65532:65532 "$folder/$service" /usr/bin/niwaki "$@" > "$folder/$service.log" 2>&1 &
}
while read -r service address arguments; do
  services+=("$service")
  readarray -t words < <(python3 -c 'import json, sys; print("\n".join(json.loads(sys.argv[1])))' "$arguments")
  start "$service" "$address" "${words[@]}"
done < <(python3 - "$compose" <<'PY'
import re, sys
text = open(sys.argv[1]).read()
for service, address, command in re.findall(r"^  (\w+):\n    <<: \*validator\n.*?ipv4_address: ([\d.]+).*?command: (\[.*?\])\n", text, re.M | re.S):
    print(service, address, command)
PY
)
ask() { curl -s -m 2 -H 'content-type: application/json' -d "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"$1\",\"params\":[$2]}" http://172.30.7.11:8545 || true; }
number() { ask eth_blockNumber "" | sed -n 's/.*"result":"\(0x[0-9a-f]*\)".*/\1/p'; }
for _ in $(seq 120); do
  height="$(number)"
  [ $((${height:-0})) -lt 5 ] || break
  sleep 0.5
done
ask qbft_getValidatorsByBlockNumber '"latest"'
echo
[ $((${height:-0})) -ge 5 ] || { tail -n 5 "$folder"/*.log >&2; echo "no block 5 within 60 s" >&2; exit 1; }
echo "${#services[@]} services, block $((height))"
