#!/usr/bin/env bash
# Builds a package for Debian and Ubuntu: the program, its unit for systemd, a configuration, manual pages and completions.
#
#   scripts/package-deb.sh [FOLDER]        # prints the file; without FOLDER it is put into target/package
#
#   NIWAKI   the binary (default: a release build)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
to="${1:-target/package}"
niwaki="${NIWAKI:-$CARGO_TARGET_DIR/release/niwaki}"
[ -x "$niwaki" ] || cargo build --release -p niwaki-node
root="$(mktemp -d)"
trap 'rm -rf "$root"' EXIT

version="$("$niwaki" --version | cut -d' ' -f2 | tr - +)"
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"
scripts/stage.sh "$niwaki" "$root" /lib/systemd/system /usr/share/zsh/vendor-completions

install -d "$root/DEBIAN"
install -m755 packaging/deb/{postinst,prerm,postrm} "$root/DEBIAN"
echo /etc/niwaki/config.toml > "$root/DEBIAN/conffiles"
# The C library that the program was linked with, or a later one.
libc="$(objdump -T "$root/usr/bin/niwaki" | grep -o 'GLIBC_[0-9.]*' | sort -Vu | tail -1 | cut -d_ -f2)"
cat > "$root/DEBIAN/control" <<CONTROL
Package: niwaki
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: Niwaki maintainers <maintainers@niwaki.invalid>
Section: net
Priority: optional
Depends: adduser, libc6 (>= $libc), libgcc-s1, libstdc++6
Installed-Size: $(du -sk "$root" | cut -f1)
Description: Ethereum execution client
 Executes and validates Ethereum blocks, beside a consensus client or as a
 validator of a private network (QBFT, IBFT 2.0).
CONTROL
mkdir -p "$to"
dpkg-deb --root-owner-group --build "$root" "$to" | sed -n "s/.*in '\(.*\)'.*/\1/p"
