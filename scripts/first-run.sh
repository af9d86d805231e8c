#!/usr/bin/env bash
# From a fresh clone to a chain on disk: installs what is missing, builds, imports the 54 blocks of
# testdata/chain (every fork from Homestead to BPO2), checks the whole database.
#
#   first-run.sh [DATA_PATH]    default: ~/.local/share/niwaki/first-run
set -euo pipefail

data_path="${1:-${XDG_DATA_HOME:-$HOME/.local/share}/niwaki/first-run}"
case "$data_path" in /*) ;; *) data_path="$PWD/$data_path" ;; esac
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
scripts/setup.sh

cargo build --release --package niwaki-node --bin niwaki
niwaki="$CARGO_TARGET_DIR/release/niwaki"
mkdir -p "$data_path"

"$niwaki" --data-path "$data_path" --genesis-file testdata/chain/genesis.json \
  blocks import --from testdata/chain/chain.rlp
"$niwaki" --data-path "$data_path" --genesis-file testdata/chain/genesis.json storage check

echo
echo "the chain is in $data_path; the program is $niwaki"
echo "next: $niwaki --help, or README.md"
