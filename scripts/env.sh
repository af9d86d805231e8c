# Sourced by the other scripts: the root of the project, cargo on the PATH, the target directory.

cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! command -v cargo >/dev/null; then
  if [ -f "${CARGO_HOME:-$HOME/.cargo}/env" ]; then
    . "${CARGO_HOME:-$HOME/.cargo}/env"
  fi
fi
if ! command -v cargo >/dev/null; then
  echo "cargo not found: install rustup from https://rustup.rs and run this again" >&2
  exit 1
fi

export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/niwaki/target}"
mkdir -p "$CARGO_TARGET_DIR"
# Absolute, whatever folder a command runs in.
CARGO_TARGET_DIR="$(cd "$CARGO_TARGET_DIR" && pwd)"
# Cargo compares times, not folders: what another checkout has built last would pass for this one's.
if [ "$(cat "$CARGO_TARGET_DIR/checkout" 2> /dev/null)" != "$PWD" ]; then
  { git ls-files -z 2> /dev/null || true; } | xargs -0 -r touch -c || true
  echo "$PWD" > "$CARGO_TARGET_DIR/checkout"
fi

# scripts/cxx/clang++ makes a first build shorter, and calls this one.
if [ -z "${NIWAKI_CLANGXX:-}" ]; then
  NIWAKI_CLANGXX="$(command -v clang++ || echo /usr/bin/clang++)"
  export NIWAKI_CLANGXX PATH="$PWD/scripts/cxx:$PATH"
fi
