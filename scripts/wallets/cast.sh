#!/usr/bin/env bash
# What cast does: numbers, a transfer, a deployment, calls, logs, an error.
set -euo pipefail

url="$1"
key=0x8f2a55949038a9610f50fb23b5883af3b4ecb3c3bb792cbcefbd1542c692be63
second=0x627306090abaB3A6e1400e9345bC60c78a8BEf57
export ETH_RPC_URL="$url"
cast() { node_modules/.bin/cast "$@"; }
field() { node -e 'console.log(JSON.parse(require("fs").readFileSync(0))[process.argv[1]])' "$1"; }
equals() { [ "$1" = "$2" ] || { echo "cast: $3: $1, want $2" >&2 && exit 1; }; }

equals "$(cast chain-id)" 1337 "chain id"
before="$(cast balance "$second")"
equals "$(cast send --json --private-key "$key" "$second" --value 5 | field status)" 0x1 "a transfer"
equals "$(cast balance "$second")" "$(node -p "String(BigInt('$before') + 5n)")" "the balance"
code="$(node -e 'import("./compile.mjs").then(({ compile }) => console.log(compile().bytecode))')"
box="$(cast send --json --private-key "$key" --create "$code" 'constructor(uint256)' 21 | field contractAddress)"
equals "$(cast call "$box" 'value()(uint256)')" 21 "the value"
cast send --json --private-key "$key" "$box" 'store(uint256)' 22 >/dev/null
equals "$(cast call "$box" 'value()(uint256)')" 22 "the value after it was stored"
equals "$(cast storage "$box" 0 | sed 's/^0x0*//')" 16 "slot 0"
cast logs --address "$box" --from-block 0 | grep blockNumber >/dev/null
# Whatever it exits with, by way of npm.
cast call "$box" 'store(uint256)' 13 2>refused || true
grep -q unlucky refused
echo "cast: all right"
