#!/usr/bin/env bash
# record.sh: makes docs/images/up.cast and up.svg from a real session (hack/up.session). It needs
# root and bin/knarr. The cluster runs in namespaces of its own, with empty /var/lib and /run, and
# is purged at the end.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ -z "${RECORDING:-}" ]; then
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  go build -o "$work/cast" ./hack/cast
  export RECORDING=$work REPOSITORY=$PWD
  unshare --net --mount --pid --fork --mount-proc --uts "$0"
  cp "$work/up.cast" docs/images/up.cast
  "$work/cast" draw docs/images/up.cast >docs/images/up.svg
  exit
fi
hostname laptop
mount -t tmpfs tmpfs /var/lib
mount -t tmpfs tmpfs /run
ip link set lo up
ip link add uplink type veth peer name switch
ip addr add 192.168.88.1/24 dev uplink
ip link set uplink up
ip link set switch up
ip route add default via 192.168.88.254
cgroup=/knarr-record-$RANDOM
mkdir "$RECORDING/bin" "$RECORDING/session"
cat >"$RECORDING/bin/knarr" <<END
#!/bin/sh
case "\$1" in
up|purge) exec $REPOSITORY/bin/knarr "\$@" --cgroup-root $cgroup ;;
esac
exec $REPOSITORY/bin/knarr "\$@"
END
chmod +x "$RECORDING/bin/knarr"
export PATH=$RECORDING/bin:$RECORDING:$PATH
GOMODCACHE=$(go env GOMODCACHE) GOCACHE=$(go env GOCACHE)
export GOMODCACHE GOCACHE
cd "$RECORDING/session"
trap 'knarr purge --yes' EXIT
cast record "$REPOSITORY/hack/up.session" >"$RECORDING/up.cast"
