#!/usr/bin/env bash
# The dashboard of a validator under load and of a node that syncs, in a headless Chromium: screenshots, no error in the console, nothing
# from elsewhere; and what the page costs an idle node. Needs chromium and Node.js 20 (Debian: apt install chromium; nodejs.org).
#
#   scripts/dashboard-test.sh CHAIN [FOLDER]
#
# CHAIN is a folder made by `niwaki-bench gen-chain`: the node syncs it. FOLDER gets the screenshots (default: a temporary one).
#   NIWAKI   the binary (default: a release build)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
bin="$CARGO_TARGET_DIR/release"
export NIWAKI="${NIWAKI:-$bin/niwaki}"
chain="$(realpath "${1:?CHAIN is missing}")"
folder="$(mktemp -d)"
shots="${2:-$folder}"
pids=()
stop() {
  kill "${pids[@]}" 2> /dev/null || true
  wait
  rm -rf "$folder"
}
trap stop EXIT
open_page() { node --experimental-websocket scripts/dashboard-shots.mjs "$@" 2> >(grep -v -i experimental >&2); }
rpc() { # PORT METHOD PARAMS
  curl -sf -H 'content-type: application/json' -d "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"$2\",\"params\":$3}" "http://127.0.0.1:$1"
}
until_ready() { for _ in $(seq 200); do rpc "$1" eth_blockNumber '[]' > /dev/null && return; sleep 0.1; done; return 1; }

echo "== a validator under load"
FLAGS=--dashboard-enabled GAS_LIMIT=0x280de800 scripts/quick-network.sh qbft "$folder/net" > "$folder/net.log" 2>&1 &
pids+=($!)
until_ready 8549
"$bin/niwaki-bench" tps --rpc http://127.0.0.1:8545,http://127.0.0.1:8549 --rate 500 --warm-up 0 --seconds 40 > /dev/null &
sleep 32
open_page http://127.0.0.1:8545/dashboard "$shots/qbft" 6
wait $!
kill "${pids[0]}"
wait "${pids[0]}" || true
pids=()

echo "== an idle node, without the page and with it"
"$NIWAKI" --network dev --data-path "$folder/idle" --rpc-http-enabled --rpc-http-port 8560 --dashboard-enabled --memory-budget 256M \
  --p2p-enabled=false > "$folder/idle.log" 2>&1 &
idle=$!
pids+=("$idle")
until_ready 8560
ticks() { awk '{ sub(/.*\) /, ""); print $12 + $13 }' "/proc/$idle/stat"; }
sleep 10
before="$(ticks)"
sleep 30
without="$(($(ticks) - before))"
open_page http://127.0.0.1:8560/dashboard "$folder/idle-shot" 36 &
page=$!
sleep 4
before="$(ticks)"
sleep 30
with="$(($(ticks) - before))"
wait "$page"
echo "processor time of the node in 30 s: ${without}0 ms without the page, ${with}0 ms with it"
kill "$idle"
pids=()

echo "== a node that syncs"
common=(--genesis-file "$chain/genesis.json" --memory-budget 256M --p2p-host 127.0.0.1 --p2p-interface 127.0.0.1 --discovery-enabled=false
  --rpc-http-enabled --rpc-http-api ADMIN,ETH,NET --engine-jwt-disabled=true)
"$NIWAKI" --data-path "$folder/source" --genesis-file "$chain/genesis.json" blocks import --from "$chain/chain.rlp" > "$folder/import.log" 2>&1
"$NIWAKI" --data-path "$folder/source" "${common[@]}" --rpc-http-port 8561 --engine-rpc-port 8571 --p2p-port 30361 > "$folder/source.log" 2>&1 &
pids+=($!)
"$NIWAKI" --data-path "$folder/sink" "${common[@]}" --rpc-http-port 8562 --engine-rpc-port 8572 --p2p-port 30362 --dashboard-enabled > "$folder/sink.log" 2>&1 &
pids+=($!)
until_ready 8561
until_ready 8562
enode="$(rpc 8561 net_enode '[]' | sed 's/.*"result":"\([^"]*\)".*/\1/')"
hash="$(rpc 8561 eth_getBlockByNumber '["latest",false]' | sed 's/.*"hash":"\(0x[0-9a-f]*\)".*/\1/')"
rpc 8562 admin_addPeer "[\"$enode\"]" > /dev/null
zero=0x0000000000000000000000000000000000000000000000000000000000000000
sleep 2
for _ in $(seq 40); do
  rpc 8572 engine_forkchoiceUpdatedV3 "[{\"headBlockHash\":\"$hash\",\"safeBlockHash\":\"$zero\",\"finalizedBlockHash\":\"$zero\"},null]" > /dev/null || true
  sleep 0.5
done &
pids+=($!)
open_page http://127.0.0.1:8562/dashboard "$shots/sync" 5
