#!/usr/bin/env bash
# images.sh OUT BIN KNARR: writes the archives of the judge's images to OUT. The database's image
# has PostgreSQL from Debian's packages; the mirror is the one of this machine's apt configuration.
# BIN holds the operator and the writer, built from their Go modules. Needs root.
set -euo pipefail
out=$(realpath -m "$1") bin=$(realpath "$2") knarr=$(realpath "$3")
work=$out/.work
mkdir -p "$work"
operator=ghcr.io/cloudnative-pg/cloudnative-pg:1.27.0 # the name that the operator's manifest has

mirror=$( (grep -rhoE '^(URIs: |deb )[^#]*' /etc/apt/sources.list /etc/apt/sources.list.d/ 2>/dev/null || true) |
  (grep -oE 'https?://[^ ]+/debian/?' || true) | head -n 1)
[ -n "$mirror" ] || { echo "images.sh: no Debian mirror in /etc/apt" >&2; exit 1; }

# debian: a root folder with PostgreSQL 15. The operator runs its instances as user 26.
debian() {
  rm -rf "$work/debian"
  debootstrap --variant=minbase --include=postgresql-15,mariadb-server,ca-certificates bookworm "$work/debian" "$mirror" \
    >"$work/debootstrap.log" 2>&1 || { tail -20 "$work/debootstrap.log" >&2; exit 1; }
  cd "$work/debian"
  rm -rf var/cache/apt/* var/lib/apt/lists/* usr/share/{doc,man,locale,info} dev/* var/lib/postgresql/15 var/lib/mysql etc/postgresql/15
  sed -i -E 's/^postgres:x:[0-9]+:[0-9]+:/postgres:x:26:26:/' etc/passwd
  sed -i -E 's/^postgres:x:[0-9]+:/postgres:x:26:/' etc/group
  chown -R --no-dereference 26:26 var/lib/postgresql var/log/postgresql run/postgresql
  cd - >/dev/null
}

key=$({ declare -f debian; echo "$mirror"; } | sha256sum | cut -d' ' -f1)
if [ "$(cat "$work/done" 2>/dev/null)" != "$key" ]; then
  echo "progress: the root folder with PostgreSQL and MariaDB: packages from $mirror"
  debian
  rm -f "$out/databases.tar"
  echo "$key" >"$work/done"
fi
[ -e "$out/databases.tar" ] || "$knarr" image build --output "$out/databases.tar" --tag field/postgresql:15 --tag field/mariadb:10 \
  --env PATH=/usr/lib/postgresql/15/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin --user 26 "$work/debian"

# The operator copies its programs by architecture from /operator into the pods of its instances.
rm -rf "$work/operator" "$work/writer"
mkdir -p "$work/operator/operator" "$work/operator/etc" "$work/writer"
cp "$bin/manager" "$work/operator/operator/manager_$(go env GOARCH)"
ln -s "operator/manager_$(go env GOARCH)" "$work/operator/manager"
"$knarr" image build --output "$out/operator.tar" --tag "$operator" --entrypoint /manager --user 65532 "$work/operator"
cp "$bin/writer" "$work/writer/"
"$knarr" image build --output "$out/writer.tar" --tag field/writer:v1 --entrypoint /writer "$work/writer"
