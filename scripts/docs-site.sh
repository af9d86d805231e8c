#!/usr/bin/env bash
# Builds the documentation as a site, and says which links lead nowhere.
#
#   scripts/docs-site.sh [FOLDER]        # FOLDER: default target/site; open its index.html
#
# mdBook is installed beside the other files of the build if it is not on the PATH.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
to="$(realpath -m "${1:-target/site}")"
mdbook="$(command -v mdbook || true)"
if [ -z "$mdbook" ]; then
  mdbook="$CARGO_TARGET_DIR/tools/bin/mdbook"
  [ -x "$mdbook" ] || cargo install --quiet --locked --root "$CARGO_TARGET_DIR/tools" --no-default-features --features search mdbook@0.5.4
fi
from="$(mktemp -d)"
trap 'rm -rf "$from"' EXIT
# The pages with the files that they link to, in the folders where they are, so that each link holds.
cp book.toml ./*.md LICENSE-* "$from"
git ls-files docs testdata/README.md tools/bench/contracts/README.md packaging/grafana packaging/prometheus packaging/compose crates/storage/FORMAT.md crates/evm/examples crates/capi/include \
  crates/capi/tests | xargs -d '\n' cp --parents -t "$from"
sed 's|](\.\./|](@|; s|](\([a-z]\)|](docs/\1|; s|](@|](|' docs/SUMMARY.md > "$from/SUMMARY.md"
# mdBook calls a README index, and leaves the links to it behind.
(cd "$from" && find docs tools testdata -name README.md -execdir mv {} about.md \; &&
  find . -name '*.md' -exec sed -i 's|\([a-z]\)/README\.md|\1/about.md|g' {} + && sed -i 's|](README\.md|](about.md|g' docs/performance/*.md)
[ ! -e "$to" ] || [ -e "$to/index.html" ] || { echo "$to is no site: name another folder" >&2 && exit 1; }
rm -rf "$to"
"$mdbook" build --dest-dir "$to" "$from"
# Each link to a page or a file of ours must lead to one.
bad=0
while IFS=$'\t' read -r page link; do
  [ -e "$(dirname "$page")/$link" ] || { echo "${page#"$to/"}: $link leads nowhere" >&2 && bad=1; }
done < <(grep -roE '(href|src)="[^"]+"' --include=*.html "$to" | sed -E 's/:(href|src)="/\t/; s/[#?].*//; s/"$//' | grep -vE $'\t(https?:|mailto:|$|/)' | sort -u)
[ "$bad" = 0 ]
echo "$to/index.html"
