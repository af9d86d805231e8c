#!/usr/bin/env bash
# Builds what is published: the program and its tools as an archive, packages for Debian and Fedora, a list of what was linked (SBOM), and checksums.
#
#   scripts/release.sh [FOLDER]        # FOLDER: default target/release-files
#
# The list of crates is also in each program (`cargo audit bin niwaki` reads it). The same commit gives the same bytes: times are those of
# the commit, and no path of this machine is in the programs. CHECK=1 builds a second time elsewhere and compares.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
scripts/setup.sh zstd rpm
to="${1:-target/release-files}"
programs=(niwaki niwaki-evm niwaki-bench niwaki-devnet)
if [ -n "$(git status --porcelain)" ]; then
  echo "there are changes that are not committed: a release is of a commit" >&2
  exit 1
fi
for tool in cargo-auditable auditable2cdx; do
  command -v "$tool" > /dev/null || cargo install --locked "$tool"
done
export SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH="$(git log -1 --format=%ct)"

# build FOLDER: the programs, with the paths of this machine replaced by names.
build() {
  local home="${CARGO_HOME:-$HOME/.cargo}"
  local remap="--remap-path-prefix=$PWD=/niwaki --remap-path-prefix=$home=/cargo --remap-path-prefix=$1=/target"
  local map="-ffile-prefix-map=$home=/cargo -ffile-prefix-map=$1=/target"
  local flags
  flags="$(sed -n 's/^rustflags = \[\(.*\)\]/\1/p' .cargo/config.toml | tr -d '",' )"
  [ "$(uname -m)" = x86_64 ] || flags=""
  CARGO_TARGET_DIR="$1" RUSTFLAGS="$flags $remap" CFLAGS="-g0 $map" CXXFLAGS="$map" \
    cargo auditable build --release --locked --workspace --bins
}
build "$CARGO_TARGET_DIR/published"
built="$CARGO_TARGET_DIR/published/release"

version="$("$built/niwaki" --version | cut -d' ' -f2)"
name="niwaki-$version-$(uname -m)-linux-gnu"
[ ! -e "$to" ] || [ -e "$to/SHA256SUMS" ] || { echo "$to holds no release: name another folder" >&2 && exit 1; }
rm -rf "$to"
mkdir -p "$to/$name"
for program in "${programs[@]}"; do
  strip --strip-debug -o "$to/$name/$program" "$built/$program"
done
cp README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE "$to/$name"
tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner -C "$to" -cf - "$name" | zstd -q -19 -T1 -o "$to/$name.tar.zst"
NIWAKI="$built/niwaki" scripts/package-deb.sh "$to"
NIWAKI="$built/niwaki" scripts/package-rpm.sh "$to"
auditable2cdx "$built/niwaki" > "$to/$name.cdx.json"

if [ -n "${CHECK:-}" ]; then
  build "$CARGO_TARGET_DIR/published-again"
  for program in "${programs[@]}"; do
    strip --strip-debug -o "$to/again" "$CARGO_TARGET_DIR/published-again/release/$program"
    cmp "$to/again" "$to/$name/$program"
  done
  rm "$to/again"
  echo "both builds gave the same programs"
fi
rm -r "${to:?}/$name"
(cd "$to" && sha256sum -- * > SHA256SUMS && cat SHA256SUMS)
