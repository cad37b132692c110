#!/usr/bin/env bash
# run.sh: runs critest (sigs.k8s.io/cri-tools) against the included container runtime and the pod
# network, without a node agent. Each test that fails must stand in expected-failures.txt, and each
# one that stands there must fail.
#
#   FOCUS=regexp SKIP=regexp run.sh  a part of the suite
#   PARALLEL=n                       tests at a time (default: 4)
#
# It writes .cache/critest/{junit.xml,critest.log,runtime.log} and prints one line
# "critest: N passed, M failed as expected, K unexpected".
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD cache=$PWD/.cache/critest knarr=$PWD/bin/knarr
bin=$cache/bin roots=${CONFORMANCE_IMAGES:-$PWD/.cache/conformance/images}/roots
[ "$(id -u)" = 0 ] || { echo "run.sh: needs root" >&2; exit 1; }
hack/prerequisites.sh conformance
mkdir -p "$bin"
echo "progress: compiling critest"
export GOFLAGS="-buildvcs=false -trimpath" CGO_ENABLED=0
go build -o "$bin/runtime" ./test/runtime
(cd test/critest && go test -c -o "$bin/critest.test" sigs.k8s.io/cri-tools/cmd/critest)
(cd test/critest && go build -o "$bin/ginkgo" github.com/onsi/ginkgo/v2/ginkgo)
echo "progress: making the suite's images"
test/critest/images.sh "$cache/images" "$roots" "$knarr"

state=$(mktemp -d "${TMPDIR:-/tmp}/kt-XXXXXX")
data=$state/data
suite='' others=$(find /sys/fs/cgroup -maxdepth 2 -type d -name k8s.io)
# finish removes what the run has made, also after a signal.
finish() {
  local status=$?
  trap - EXIT INT TERM HUP
  [ -z "$suite" ] || { kill -TERM "$suite" 2>/dev/null; wait "$suite" 2>/dev/null; } || true
  # Containers without a parent cgroup are in containerd's own, which other software may use, too.
  [ -n "$others" ] || find /sys/fs/cgroup -depth -type d -path '*/k8s.io*' -exec rmdir {} + 2>/dev/null || true
  rm -rf "$state"
  exit $status
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

echo "progress: running critest"
rm -f "$cache"/*.log "$cache/junit.xml"
status=0
# A machine of its own: a network, a process 1, and mounts that pods may share with it.
unshare --net --uts --mount --pid --fork --kill-child=TERM --mount-proc \
  "$root/test/critest/machine.sh" "$cache" "$state" "$knarr" &
suite=$!
wait "$suite" || status=$?
suite=''
[ -e "$cache/junit.xml" ] || { tail -n 30 "$cache"/*.log >&2; echo "run.sh: the suite did not end" >&2; exit 1; }

test/conformance/outcome.sh critest "$cache/junit.xml" test/critest/expected-failures.txt
