#!/usr/bin/env bash
# Gives the four key folders of a generated network the names and addresses that qbft.yml has for them.
#
#   packaging/compose/static-nodes.sh NETWORK
set -euo pipefail
network="$1"
nodes=() number=0
for folder in "$network"/keys/*/; do
  number=$((number + 1))
  mkdir -p "$network/validator$number"
  # The user of the image reads it: 65532, which only root can make its owner.
  if [ "$(id -u)" = 0 ]; then
    install -o 65532 -m 400 "$folder/key" "$network/validator$number/key"
  else
    install -m 444 "$folder/key" "$network/validator$number/key"
    echo "all users of this machine can read $network/validator$number/key: run this as root" >&2
  fi
  public="$(cat "$folder/key.pub")"
  nodes+=("\"enode://${public#0x}@172.30.7.1$number:30303\"")
done
[ "$number" = 4 ] || { echo "$network/keys has $number folders, 4 are wanted" >&2; exit 1; }
(IFS=,; echo "[${nodes[*]}]") > "$network/static-nodes.json"
