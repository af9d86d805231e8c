#!/usr/bin/env bash
# A network of validators on this machine: four that make blocks and a node that follows. Ctrl-C ends it.
#
#   scripts/quick-network.sh [qbft|ibft2] [FOLDER]
#
# FOLDER keeps keys, chains and logs, and goes on with what is in it; without it a temporary one is used and removed.
# JSON-RPC of node N is on port 8545 + N; node 4 is no validator. FOLDER/pids has the processes. The environment may have
#   NIWAKI      the binary (default: a release build)
#   QUORUM      a geth of GoQuorum 24.4, whose nodes are started instead, with qbft
#   PERIOD      seconds from block to block (default 1; of niwaki also less: 0.2)
#   GAS_LIMIT   of a block, hex (default 0x2faf080)
#   MEMORY      the budget of each niwaki (default 256M)
#   FLAGS       more flags of each niwaki
#   WS          1: WebSocket of node N on port 8555 + N
#   METRICS     1: metrics of node N on port 9545 + N
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"

protocol="${1:-qbft}"
folder="${2:-}"
case "$protocol" in qbft | ibft2) ;; *)
  echo "want qbft or ibft2, got $protocol" >&2
  exit 2
  ;;
esac
if [ -n "${QUORUM:-}" ] && [ "$protocol" != qbft ]; then
  echo "GoQuorum speaks qbft" >&2
  exit 2
fi
niwaki="${NIWAKI:-$CARGO_TARGET_DIR/release/niwaki}"
[ -x "$niwaki" ] || cargo build --release -p niwaki-node
[ -n "$folder" ] || { folder="$(mktemp -d)" && remove=1; }
mkdir -p "$folder"
began="$(date +%s.%N)"

forks='"berlinBlock": 0, "londonBlock": 0, "shanghaiTime": 0, "zeroBaseFee": true'
[ -z "${QUORUM:-}" ] || forks='"homesteadBlock": 0, "eip150Block": 0, "eip155Block": 0, "eip158Block": 0, "byzantiumBlock": 0,
  "constantinopleBlock": 0, "petersburgBlock": 0, "istanbulBlock": 0, "berlinBlock": 0, "isQuorum": true, "txnSizeLimit": 64'

period="\"blockperiodseconds\": ${PERIOD:-1}"
case "${PERIOD:-1}" in *.*)
  period="\"blockperiodseconds\": 1, \"xblockperiodmilliseconds\": $(awk "BEGIN { printf \"%d\", 1000 * $PERIOD }")"
  ;;
esac

if [ ! -d "$folder/network" ]; then
  cat > "$folder/config.json" <<JSON
{"genesis": {"config": {"chainId": 1337, $forks,
  "$protocol": {$period, "epochlength": 30000, "requesttimeoutseconds": 4}},
  "nonce": "0x0", "timestamp": "0x0", "gasLimit": "${GAS_LIMIT:-0x2faf080}", "difficulty": "0x1",
  "mixHash": "0x63746963616c2062797a616e74696e65206661756c7420746f6c6572616e6365",
  "coinbase": "0x0000000000000000000000000000000000000000",
  "alloc": {"fe3b557e8fb62b89f4916b721be55ceb828dbd73": {"balance": "0xad78ebc5ac6200000000"}}},
 "blockchain": {"nodes": {"generate": true, "count": 4}}}
JSON
  "$niwaki" operator generate-blockchain-config --config-file "$folder/config.json" --to "$folder/network" \
    --private-key-file-name key
fi

keys=("$folder"/network/keys/*/)
nodes="$(for number in 0 1 2 3; do
  printf '"enode://%s@127.0.0.1:%d"\n' "$(cut -c3- "${keys[number]}key.pub")" "$((30303 + number))"
done | paste -sd,)"
pids=()
stop() {
  trap - EXIT INT TERM
  [ ${#pids[@]} -eq 0 ] || kill "${pids[@]}" 2>/dev/null || true
  wait
  [ -z "${remove:-}" ] || rm -rf "$folder"
}
trap stop EXIT
trap 'exit 0' INT TERM
start_niwaki() {
  local key=() ws=() metrics=()
  [ -z "${WS:-}" ] || ws=(--rpc-ws-enabled --rpc-ws-port "$((8555 + $1))" --rpc-ws-api ETH,NET,WEB3)
  [ -z "${METRICS:-}" ] || metrics=(--metrics-enabled --metrics-port "$((9545 + $1))")
  [ "$1" -eq 4 ] || key=(--node-private-key-file "${keys[$1]}key")
  # shellcheck disable=SC2086
  exec "$niwaki" --data-path "$2" --genesis-file "$folder/network/genesis.json" "${key[@]}" --memory-budget "${MEMORY:-256M}" \
    --p2p-host 127.0.0.1 --p2p-interface 127.0.0.1 --p2p-port "$((30303 + $1))" --discovery-enabled=false \
    --rpc-http-enabled --rpc-http-port "$((8545 + $1))" --rpc-http-api ADMIN,ETH,IBFT,NET,NIWAKI,QBFT,TXPOOL,WEB3 \
    --min-gas-price 0 "${ws[@]}" "${metrics[@]}" ${FLAGS:-}
}
start_quorum() {
  local limit=$((${GAS_LIMIT:-0x2faf080})) mine=()
  if [ ! -d "$2/geth/chaindata" ]; then
    "$QUORUM" --datadir "$2" init "$folder/network/genesis.json"
    mv "$2/static-nodes.json" "$2/geth/"
    printf '[Node.P2P]\nListenAddr = "127.0.0.1:%d"\nNoDiscovery = true\n' "$((30303 + $1))" > "$2/config.toml"
  fi
  if [ "$1" -ne 4 ]; then
    cut -c3- "${keys[$1]}key" > "$2/geth/nodekey"
    mine=(--mine --miner.threads 1)
  fi
  export PRIVATE_CONFIG=ignore
  exec "$QUORUM" --config "$2/config.toml" --datadir "$2" --networkid 1337 --syncmode full --gcmode full --ipcdisable --nat none \
    --netrestrict 127.0.0.0/8 --http --http.port "$((8545 + $1))" --http.api admin,eth,istanbul,net,txpool,web3 --verbosity 2 \
    --miner.gasprice 0 --miner.gastarget "$limit" --miner.gaslimit "$limit" "${mine[@]}" --txpool.globalslots 200000 \
    --txpool.accountslots 2000 --txpool.globalqueue 200000 --txpool.accountqueue 2000
}
for number in 0 1 2 3 4; do
  data="$folder/node$number"
  mkdir -p "$data"
  [ -e "$data/geth" ] || echo "[$nodes]" > "$data/static-nodes.json"
  if [ -n "${QUORUM:-}" ]; then
    start_quorum "$number" "$data" > "$data/log" 2>&1 &
  else
    start_niwaki "$number" "$data" > "$data/log" 2>&1 &
  fi
  pids+=($!)
done
(IFS=,; echo "${pids[*]}") > "$folder/pids"

head() {
  curl -s -H 'content-type: application/json' -d '{"jsonrpc":"2.0","id":1,"method":"eth_blockNumber","params":[]}' \
    "http://127.0.0.1:$((8545 + $1))" | sed -n 's/.*"result":"\(0x[0-9a-f]*\)".*/\1/p'
}
until [ "$(($(head 4 || true) + 0))" -gt 0 ]; do
  for pid in "${pids[@]}"; do
    kill -0 "$pid" 2>/dev/null || { echo "a node has ended; its log is in $folder" >&2 && exit 1; }
  done
  sleep 0.1
done
echo "the node that follows has block $(($(head 4))) $(echo "$(date +%s.%N) $began" | awk '{printf "%.1f", $1 - $2}') s after the start"
echo "JSON-RPC: http://127.0.0.1:8545 to 8549; logs: $folder/node*/log; Ctrl-C ends all"
wait
