#!/usr/bin/env bash
# run.sh HOURS: runs the soak in network, mount, host name and process namespaces of its own, which
# end with all that is in them. It writes the table and the plot to .cache/soak.
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=$PWD/.cache/soak
[ "$(id -u)" = 0 ] || { echo "run.sh: needs root" >&2; exit 1; }
mkdir -p "$cache"
go build -o "$cache/soak" ./test/soak
state=$(mktemp -d "${TMPDIR:-/tmp}/ksoak-XXXXXX")
trap 'status=$?; for log in "$state"/*.log; do [ ! -e "$log" ] || cp "$log" "$cache/"; done; rm -rf "$state"; exit $status' EXIT
trap 'kill -TERM "$soak" 2>/dev/null || true' INT TERM HUP
unshare --net --mount --uts --pid --fork --kill-child --mount-proc sh -c 'ip link set lo up; mount -t tmpfs run /run; "$@" & pid=$!; trap "kill -TERM $pid" TERM; while kill -0 $pid 2>/dev/null; do wait $pid; status=$?; done; exit $status' sh \
  "$cache/soak" --knarr "${KNARR:-$PWD/bin/knarr}" --state "$state" --out "$cache" --hours "${1:-8}" &
soak=$!
status=0
wait "$soak" || status=$?
while kill -0 "$soak" 2>/dev/null; do wait "$soak" || status=$?; done
exit $status
