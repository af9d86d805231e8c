#!/usr/bin/env bash
# Puts the files of a package into a folder, as they will be on the machine: the program, its unit, a configuration, manual pages, completions.
#
#   scripts/stage.sh NIWAKI ROOT UNITS ZSH        # folders of units and of zsh's completions, which differ between systems
set -euo pipefail
niwaki="$1" root="$2" units="$3" zsh="$4"
cd "$(dirname "${BASH_SOURCE[0]}")/.."
install -Dm755 "$niwaki" "$root/usr/bin/niwaki"
# The names of functions stay: niwaki profile shows them.
strip --strip-debug "$root/usr/bin/niwaki"
install -Dm644 packaging/systemd/niwaki.service "$root$units/niwaki.service"
install -Dm644 packaging/systemd/config.toml "$root/etc/niwaki/config.toml"
"$niwaki" man --to "$root/usr/share/man/man1"
gzip -9n "$root"/usr/share/man/man1/*.1
install -d "$root/usr/share/bash-completion/completions" "$root$zsh" "$root/usr/share/fish/vendor_completions.d"
"$niwaki" completions bash > "$root/usr/share/bash-completion/completions/niwaki"
"$niwaki" completions zsh > "$root$zsh/_niwaki"
"$niwaki" completions fish > "$root/usr/share/fish/vendor_completions.d/niwaki.fish"
install -Dm644 LICENSE-MIT LICENSE-APACHE -t "$root/usr/share/doc/niwaki"
install -Dm644 packaging/grafana/niwaki.json packaging/prometheus/*.yml -t "$root/usr/share/niwaki"
# The same input gives the same package.
find "$root" -exec touch -h -d "@${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}" {} +
