#!/usr/bin/env bash
# Everything that must hold before a change goes in: format, lints, house rules, tests, and a minute
# of differential fuzzing and one of the readers of peers' messages. NIWAKI_CORPUS=DIR adds the full upstream fixtures (docs/testing.md);
# NIWAKI_FUZZ_SECONDS=N sets the length of the fuzzing.
set -euo pipefail

. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
scripts/setup.sh

step() {
  printf '\n== %s (%d s so far)\n' "$*" "$SECONDS"
  "$@"
}

step cargo fmt --all --check
step cargo xtask tidy
step cargo xtask deps
step cargo clippy --release --workspace --all-targets -- -D warnings
step cargo test --release --workspace
step cargo build --release --workspace --bins
bin="$CARGO_TARGET_DIR/release"
if [ "$(uname -m)" = x86_64 ]; then
  step cargo xtask handlers "$bin/niwaki"
fi
step scripts/docs-site.sh "$CARGO_TARGET_DIR/site"
# Beside geth where `cargo xtask peers` has built it, else beside itself.
peer=("--geth" "$CARGO_TARGET_DIR/peers/geth")
[ -x "${peer[1]}" ] || peer=()
step "$bin/niwaki-devnet" play --niwaki "$bin/niwaki" "${peer[@]}" --slots 60 --slot-ms 150
step "$bin/niwaki-devnet" play --niwaki "$bin/niwaki" "${peer[@]}" --slots 60 --slot-ms 150 --amsterdam-slot 20
# A chain of go-ethereum's, where `cargo xtask peers` or `go mod download` has left its module.
payloads="$(go env GOMODCACHE 2>/dev/null || true)/github.com/ethereum/go-ethereum@v1.17.10/cmd/devp2p/internal/ethtest/testdata"
if [ -f "$payloads/newpayload.json" ]; then
  step "$bin/niwaki-devnet" payloads --niwaki "$bin/niwaki" "$payloads"
  if [ -x "$CARGO_TARGET_DIR/peers/devp2p" ]; then
    step "$bin/niwaki-devnet" peers devp2p --niwaki "$bin/niwaki" --devp2p "$CARGO_TARGET_DIR/peers/devp2p" --chain "$payloads"
  fi
else
  echo "go-ethereum's test chain is not on this machine: docs/testing.md says how to get it"
fi
step "$bin/niwaki-devnet" soak --niwaki "$bin/niwaki" --slots 20000 --contracts 10 --memory-budget 128M \
  --minutes 0 --transactions 20000 --slot-ms 100
step "$bin/niwaki-devnet" fuzz --niwaki "$bin/niwaki" --seconds 10
# Networks of validators in virtual time.
step "$bin/niwaki-devnet" simulate --seeds 1000
step "$bin/niwaki-devnet" fuzz-wire --seconds "${NIWAKI_FUZZ_SECONDS:-60}" --jobs 2
# A node gets a chain from its peer: from one of ours, and both ways with geth.
sync=("$bin/niwaki-devnet" peers sync --niwaki "$bin/niwaki" "${peer[@]}" --blocks 200)
step "${sync[@]}"
if [ ${#peer[@]} -gt 0 ]; then
  step "${sync[@]}" --source geth
  step "${sync[@]}" --sink geth
fi
# Some nodes take few columns of blobs.
step "$bin/niwaki-devnet" peers blobs --niwaki "$bin/niwaki" "${peer[@]}" --transactions 24
# Validators agree, are killed one by one and all at once, and go on.
step "$bin/niwaki-devnet" peers validators --niwaki "$bin/niwaki" --naming transitions --period-ms 200 --blocks 10 --blackouts 1
step "$bin/niwaki-devnet" peers validators --niwaki "$bin/niwaki" --protocol ibft2 --period-ms 200 --blocks 10 --blackouts 1
# The state of a late block instead of every block, likewise.
snap=("$bin/niwaki-devnet" peers sync --niwaki "$bin/niwaki" "${peer[@]}" --blocks 300 --snap)
step "${snap[@]}"
if [ ${#peer[@]} -gt 0 ]; then
  step "${snap[@]}" --source geth
  step "${snap[@]}" --sink geth
fi
ulimit -Sn "$(ulimit -Hn)"
step "$bin/niwaki-devnet" sockets --niwaki "$bin/niwaki" --sockets 900
step scripts/wallets.sh
# A generated chain of each fork: geth must import the file that we made, to the same head.
chains="$(mktemp -d)"
trap 'rm -rf "$chains"' EXIT
for fork in prague osaka amsterdam; do
  step "$bin/niwaki-bench" gen-chain --to "$chains/$fork" --fork "$fork" --blocks 8 --accounts 2000 --slots 20000 --senders 200
  step "$bin/niwaki-bench" import "$chains/$fork" --runs 1 ${peer[1]:+--peer "geth=${peer[1]}"}
  step "$bin/niwaki-bench" compare "$chains/$fork" --runs 1 --work-dir "$chains" ${peer[1]:+--peer "geth=${peer[1]}"}
done
if [ -n "${NIWAKI_CORPUS:-}" ]; then
  step "$bin/niwaki-devnet" fixtures --niwaki "$bin/niwaki" --every 6 "$NIWAKI_CORPUS/engine-tests"
fi
step "$bin/niwaki-evm" fuzz --seconds "${NIWAKI_FUZZ_SECONDS:-60}"
# Whole blocks beside go-ethereum, where `cargo xtask peers` has built its program.
if [ -x "$CARGO_TARGET_DIR/peers/evm" ]; then
  for fork in Osaka Amsterdam; do
    step "$bin/niwaki-evm" fuzz --t8n "$CARGO_TARGET_DIR/peers/evm" --fork "$fork" --seconds 10 --jobs 2 --keep "$CARGO_TARGET_DIR/tmp"
  done
  step "$bin/niwaki-evm" fuzz --statetest "$CARGO_TARGET_DIR/peers/evm" --seconds 20 --jobs 2 --keep "$CARGO_TARGET_DIR/tmp"
fi

printf '\nall passed in %d s\n' "$SECONDS"
