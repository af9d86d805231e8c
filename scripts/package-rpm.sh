#!/usr/bin/env bash
# Builds a package for Fedora, RHEL and their kin: what package-deb.sh puts into one for Debian. Needs rpmbuild (Debian: the package rpm).
#
#   scripts/package-rpm.sh [FOLDER]        # prints the file; without FOLDER it is put into target/package
#
#   NIWAKI   the binary (default: a release build)
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
to="${1:-target/package}"
niwaki="${NIWAKI:-$CARGO_TARGET_DIR/release/niwaki}"
[ -x "$niwaki" ] || cargo build --release -p niwaki-node
root="$(mktemp -d)"
trap 'rm -rf "$root"' EXIT
export SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}"
scripts/stage.sh "$niwaki" "$root/files" /usr/lib/systemd/system /usr/share/zsh/site-functions
# A version of rpm has no hyphen: what follows it sorts after the release's own.
version="$("$niwaki" --version | cut -d' ' -f2 | tr - ^)"
mkdir -p "$to"
rpmbuild -bb --quiet packaging/rpm/niwaki.spec --define "_topdir $root/rpm" --define "niwaki_version $version" --define "niwaki_files $root/files" \
  --define "use_source_date_epoch_as_buildtime 1" --define "_buildhost localhost" --define "_rpmdir $to" --define "_build_name_fmt %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm"
echo "$to/niwaki-$version-1.$(uname -m).rpm"
