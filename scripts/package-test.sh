#!/usr/bin/env bash
# Installs the package in a clean Debian, runs the node as its unit would, upgrades it over its data, and removes it without leftovers.
# Then the same with the package for Fedora, if rpm is there. Needs root, debootstrap and a mirror; systemd-analyze checks the unit where it is there.
#
#   scripts/package-test.sh [MIRROR]
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/env.sh"
mirror="${1:-http://deb.debian.org/debian}"
folder="$(mktemp -d)"
root="$folder/root"
node=""
stop() {
  [ -z "$node" ] || kill "$node" 2> /dev/null || true
  wait
  umount "$root/proc" 2> /dev/null || true
  rm -rf "$folder"
}
trap stop EXIT
say() { printf '\n== %s\n' "$*"; }
inside() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }

say "package"
deb="$(scripts/package-deb.sh "$folder")"
dpkg-deb --info "$deb" | sed -n '2,12p'
say "a clean Debian 12"
debootstrap --variant=minbase --include=adduser,libstdc++6 bookworm "$root" "$mirror" > "$folder/debootstrap.log"
mount -t proc proc "$root/proc"
# What Debian's own tools write when any package comes and goes is not counted.
files() { inside find / -xdev | grep -vE '^/(proc|run|var/lib/dpkg|var/log|var/cache)/|^/etc/(passwd|group|shadow|gshadow)-$' | sort; }
files > "$folder/before"
inside cat /etc/passwd /etc/group | sort > "$folder/users"

say "install"
cp "$deb" "$root/tmp/niwaki.deb"
inside dpkg -i /tmp/niwaki.deb
inside niwaki --version
# What niwaki profile names.
nm --demangle "$root/usr/bin/niwaki" | grep -c niwaki_evm::
inside niwaki validate-config --config-file /etc/niwaki/config.toml
# A network that fits into a test.
sed -i 's/^network = .*/network = "dev"/' "$root/etc/niwaki/config.toml"
inside niwaki --config-file /etc/niwaki/config.toml doctor --disk-seconds 1 --ntp-server none || true

run() {
  inside setpriv --reuid niwaki --regid niwaki --clear-groups --no-new-privs --inh-caps=-all --bounding-set=-all \
    niwaki --config-file /etc/niwaki/config.toml > "$folder/log" 2>&1 &
  node=$!
  for _ in $(seq 100); do
    ! grep -q Ready "$folder/log" || return 0
    sleep 0.1
  done
  cat "$folder/log"
  return 1
}
end() {
  pkill -x niwaki -P "$node" || kill "$node"
  wait "$node" || true
  node=""
  grep -q 'everything is on disk' "$folder/log"
}
say "run as its user"
run && end
inside stat -c '%U %a %n' /var/lib/niwaki
identity="$(cat "$root/var/lib/niwaki/database/IDENTITY")"
say "upgrade over its data and a changed configuration"
inside dpkg -i /tmp/niwaki.deb
grep -q '^network = "dev"' "$root/etc/niwaki/config.toml"
run && end
[ "$identity" = "$(cat "$root/var/lib/niwaki/database/IDENTITY")" ]
say "remove, then purge"
inside dpkg -r niwaki
[ -d "$root/var/lib/niwaki" ] && [ ! -e "$root/usr/bin/niwaki" ]
inside dpkg -P niwaki
rm "$root/tmp/niwaki.deb"
files > "$folder/after"
diff "$folder/before" "$folder/after"
inside cat /etc/passwd /etc/group | sort | diff "$folder/users" -
echo "nothing is left"

if command -v rpmbuild > /dev/null; then
  # rpm installs into another root; its scripts find there what they call, by the names that Fedora has too.
  say "package for Fedora"
  rpm="$(scripts/package-rpm.sh "$folder")"
  rpm --root "$root" --nodeps --install "$rpm"
  inside stat -c '%U %a %n' /var/lib/niwaki
  sed -i 's/^network = .*/network = "dev"/' "$root/etc/niwaki/config.toml"
  run && end
  identity="$(cat "$root/var/lib/niwaki/database/IDENTITY")"
  rpm --root "$root" --nodeps --upgrade --force "$rpm"
  grep -q '^network = "dev"' "$root/etc/niwaki/config.toml"
  run && end
  [ "$identity" = "$(cat "$root/var/lib/niwaki/database/IDENTITY")" ]
  rpm --root "$root" --erase niwaki
  # As everywhere with rpm, what the node has written stays, and a configuration that was changed.
  [ -d "$root/var/lib/niwaki/database" ] && [ -e "$root/etc/niwaki/config.toml.rpmsave" ]
  rm -r "$root/var/lib/niwaki" "$root/etc/niwaki"
  files | grep -vE '^/(var/lib/rpm|root/.rpmdb)' > "$folder/after"
  diff "$folder/before" "$folder/after"
  echo "nothing else is left"
fi
if command -v systemd-analyze > /dev/null; then
  say "unit"
  install -Dm755 "${NIWAKI:-$CARGO_TARGET_DIR/release/niwaki}" "$folder/unit/usr/bin/niwaki"
  sed "s|/usr/bin/niwaki|$folder/unit/usr/bin/niwaki|; s/^Documentation.*//" packaging/systemd/niwaki.service > "$folder/niwaki.service"
  systemd-analyze verify "$folder/niwaki.service"
  systemd-analyze security --offline=true "$folder/niwaki.service" | tail -1
fi
