#!/usr/bin/env bash
# Installs the Debian packages that the build needs and the machine lacks; does nothing where all are there.
# The Rust toolchain is not its business: rustup reads rust-toolchain.toml by itself.
#
#   setup.sh [COMMAND...]    also makes sure of these commands, each the name of its package
set -euo pipefail

missing=()
need() { # need COMMAND PACKAGE
  command -v "$1" >/dev/null || missing+=("$2")
}

need cc build-essential # secp256k1, zstd and blst are C
need "${NIWAKI_CLANGXX:-clang++}" clang # RocksDB is C++: .cargo/config.toml
need make build-essential # jemalloc
need mold mold # the linker named in .cargo/config.toml
for command in "$@"; do
  need "$command" "$command"
done

# bindgen reads RocksDB's header through libclang, with clang's own headers beside it.
have_libclang() {
  [ -n "${LIBCLANG_PATH:-}" ] && return 0
  command -v llvm-config >/dev/null && [ -e "$(llvm-config --libdir)/libclang.so" ] && return 0
  compgen -G '/usr/lib/llvm-*/lib/libclang.so' >/dev/null ||
    compgen -G '/usr/lib*/libclang.so' >/dev/null
}
have_libclang || missing+=(libclang-dev)

[ ${#missing[@]} -eq 0 ] && exit 0
packages="$(printf '%s\n' "${missing[@]}" | sort -u | paste -sd ' ')"

if ! command -v apt-get >/dev/null; then
  echo "missing (by Debian's names): $packages" >&2
  echo "install them with your system's package manager and run this again" >&2
  exit 1
fi
as_root=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "missing: run 'apt-get install $packages' as root, then this again" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "installing: $packages"
"${as_root[@]}" apt-get update -qq
# shellcheck disable=SC2086 # one word per package is meant
"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages </dev/null
