#!/usr/bin/env bash
# What people use, against `niwaki --network dev`: ethers, viem, web3.js, cast, hardhat, web3.py, with contracts compiled by
# solc. Needs node and npm, and python3 for web3.py; what is missing is left out with a word.
#
#   wallets.sh [FOLDER]    where packages are installed [default: wallets in the target directory]
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
source_folder="$PWD/scripts/wallets"
folder="${1:-$CARGO_TARGET_DIR/wallets}"
niwaki="$CARGO_TARGET_DIR/release/niwaki"

if ! command -v npm >/dev/null; then
  echo "wallets: left out, there is no npm"
  exit 0
fi
mkdir -p "$folder"
cp -r "$source_folder"/* "$folder/"
cp "$source_folder"/{Box.sol,compile.mjs} "$folder/hardhat/"
cd "$folder"
if ! npm install --no-audit --no-fund --loglevel=error; then
  echo "wallets: left out, npm can't install the packages"
  exit 0
fi

data="$(mktemp -d)"
"$niwaki" --network dev --data-path "$data" --memory-budget 256M --logging-format JSON \
  --rpc-http-enabled --rpc-http-port 0 --rpc-ws-enabled --rpc-ws-port 0 2>"$data/log" &
node=$!
trap 'kill $node 2>/dev/null; wait $node 2>/dev/null; rm -rf "$data"' EXIT
for _ in $(seq 100); do
  grep -q '"message":"Ready"' "$data/log" && break
  sleep 0.1
done
address() { grep "\"message\":\"$1\"" "$data/log" | sed 's/.*"address":"\([^"]*\)".*/\1/'; }
http="http://$(address 'JSON-RPC over HTTP')"
ws="ws://$(address 'JSON-RPC over WebSocket')"

timeout 120 node ethers.mjs "$http" "$ws"
timeout 120 node viem.mjs "$http"
timeout 120 node web3.mjs "$http"
timeout 120 ./cast.sh "$http"

# Hardhat wants a newer node than most systems have; a package brings one.
if (cd hardhat && npm install --no-audit --no-fund --loglevel=error); then
  (cd hardhat && NIWAKI_URL="$http" timeout 120 node_modules/.bin/node node_modules/.bin/hardhat run --no-compile box.mjs)
else
  echo "hardhat: left out, npm can't install it"
fi


if command -v python3 >/dev/null && python3 -m venv python >/dev/null 2>&1 &&
  python/bin/pip install --quiet --disable-pip-version-check 'web3==8.0.0'; then
  node -e 'import("./compile.mjs").then(({ compile }) => console.log(JSON.stringify(compile())))' >box.json
  timeout 120 python/bin/python web3py.py "$http" box.json
else
  echo "web3.py: left out, there is no python3 with venv, or PyPI can't be reached"
fi
