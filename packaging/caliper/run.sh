#!/usr/bin/env bash
# Hyperledger Caliper 0.6.0 against a network that runs, such as scripts/quick-network.sh with WS=1. Its report is in report.html here.
#
#   packaging/caliper/run.sh [FOLDER]
#
# FOLDER has Caliper's packages, and gets them by npm if it is new. network.json says where the node is (WebSocket of node 4).
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
folder="${1:-${XDG_CACHE_HOME:-$HOME/.cache}/niwaki/caliper}"
if [ ! -d "$folder/node_modules/@hyperledger/caliper-ethereum" ]; then
  mkdir -p "$folder"
  (
    cd "$folder"
    [ -f package.json ] || npm init -y > /dev/null
    npm install --no-audit --no-fund @hyperledger/caliper-cli@0.6.0
    npx caliper bind --caliper-bind-sut besu:latest --caliper-bind-cwd .
  )
fi
export NODE_PATH="$folder/node_modules"
"$folder/node_modules/.bin/caliper" launch manager --caliper-workspace "$here" --caliper-benchconfig benchmark.yaml \
  --caliper-networkconfig network.json --caliper-report-path report.html
