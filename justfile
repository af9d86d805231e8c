# What we type every day. `just` lists it.

_default:
    @just --list

# check and test one room: `just quick trie`
quick room:
    cargo clippy --package niwaki-{{room}} --all-targets -- -D warnings
    cargo test --release --package niwaki-{{room}}

# format, and the house rules
tidy:
    cargo fmt
    cargo xtask tidy
    cargo xtask deps

# everything
test:
    scripts/test.sh

# build, import the chain of testdata, check the database
first-run:
    scripts/first-run.sh

# random programs and transactions compared with revm
fuzz seconds="600":
    cargo run --release --package niwaki-evmtool -- fuzz --seconds {{seconds}}

# the full upstream fixtures: `just corpus ~/corpus`
corpus dir:
    NIWAKI_CORPUS={{dir}} cargo test --release --workspace

# the documentation, as a reader sees it
doc:
    cargo doc --workspace --no-deps --open

# 500 slots of a consensus client over niwaki and geth at once, 4 s each: 35 minutes
devnet slots="500" ms="4000":
    cargo build --release --workspace --bins
    cargo xtask peers
    "${CARGO_TARGET_DIR:-target}/release/niwaki-devnet" play --niwaki "${CARGO_TARGET_DIR:-target}/release/niwaki" \
      --geth "${CARGO_TARGET_DIR:-target}/peers/geth" --slots {{slots}} --slot-ms {{ms}}
