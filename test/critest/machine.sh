#!/usr/bin/env bash
# machine.sh CACHE STATE KNARR: is process 1 of the machine that run.sh makes for the suite. It
# starts the runtime and a registry, fills the registry with the images, and runs critest.
set -euo pipefail
cache=$1 state=$2 knarr=$3
bin=$cache/bin data=$state/data
mount --make-rshared /
hostname critest
ip link set lo up
# Without a default route there is no address that a pod could use as the node's.
ip link add node0 type veth peer name node1
ip addr add 192.168.78.1/24 dev node0
ip link set node0 up && ip link set node1 up
ip route add default via 192.168.78.254

wait_for() { # wait_for FILE: waits until the file has a line that begins with "ready"
  for _ in $(seq 300); do
    ! grep -q '^ready' "$1" 2>/dev/null || return 0
    sleep 0.1
  done
  echo "machine.sh: not ready after 30 s:" >&2
  tail -n 20 "$1" >&2
  return 1
}

runtime=''
finish() {
  local status=$?
  trap - EXIT TERM
  [ -z "$runtime" ] || { kill -TERM "$runtime"; wait "$runtime" || status=1; }
  exit $status
}
trap finish EXIT
trap 'exit 143' TERM

# The registry stands for all others.
mkdir -p "$data/registries/_default"
printf 'server = "http://127.0.0.1:5000"\n[host."http://127.0.0.1:5000"]\n  capabilities = ["pull", "resolve"]\n' >"$data/registries/_default/hosts.toml"
TMPDIR=$state "$knarr" image registry --listen 127.0.0.1:5000 >"$cache/registry.log" 2>&1 &
wait_for "$cache/registry.log"
TMPDIR=$state "$bin/runtime" "$data" >"$cache/runtime.log" 2>&1 &
runtime=$!
wait_for "$cache/runtime.log"
endpoint=$(sed -n 's/^ready \([^ ]*\).*/\1/p' "$cache/runtime.log")
socket=${endpoint#unix://}
for archive in "$cache"/images/*.tar; do
  for name in $("$knarr" image load --socket "$socket" "$archive"); do
    "$knarr" image push --socket "$socket" "$name" "127.0.0.1:5000/${name#*/}" >/dev/null
    "$knarr" image rm --socket "$socket" "$name" >/dev/null
  done
done
echo "progress: $(find "$cache/images" -name '*.tar' | wc -l) images are in the registry"

arguments=(--runtime-endpoint="$endpoint" --websocket-exec="${WEBSOCKET:-false}")
TMPDIR=$state "$bin/ginkgo" --procs="${PARALLEL:-4}" --no-color --timeout=20m --junit-report=junit.xml --output-dir="$cache" \
  ${FOCUS:+--focus="$FOCUS"} --skip="benchmark${SKIP:+|$SKIP}" "$bin/critest.test" -- "${arguments[@]}" >>"$cache/critest.log" 2>&1 || true
