#!/usr/bin/env bash
# run.sh: runs the official conformance suite, or another part of upstream's e2e suite, against a
# new cluster, which is removed afterwards.
#
#   FOCUS=regexp SKIP=regexp PROCS=n run.sh  a part of the suite (default: all of it, 8 at a time,
#                                            then the serial part)
#   LABELS=filter run.sh                     the tests that the label filter selects, in Ginkgo's
#                                            syntax, instead of the conformance tests; for example
#                                            LABELS='sig-storage && !Conformance'
#   run.sh --list FILE…                      the tests named in the files, one full name per line
#                                            ('#' begins a comment); all of them must pass
#   KNOWN=1                                  also the tests of fails-upstream.txt, which otherwise
#                                            run only if a list names them
#   SERIAL=no|only                           without the serial part, or nothing else
#   NODES=1                                  one node instead of two; two tests need two
#   SERVERS=3                                three servers beside the two nodes (servers.sh)
#   KILLS=1                                  with SERVERS=3, also kills one server after the other,
#                                            every KILL_EVERY seconds (120), and starts it again
#                                            after KILL_BACK seconds (15)
#   ATTEMPTS=n                               how often a failed test is run (default: 1, with KILLS
#                                            3: a write whose server dies has no known outcome)
#   GATES=name=true,… RUNTIME=group/version=true,…
#                                            the servers' --feature-gates and --runtime-config. A
#                                            list whose tests need a gate that is off by default
#                                            turns it on, with its API
#   COMPACTION=5m                            how often the API server compacts old revisions
#                                            (default: 30s)
#   KEEP=1                                   leaves the cluster running
#
# With KILLS, the tests of servers-excepted.txt are left out.
#
# It writes .cache/conformance/{results.md,passed.txt,e2e.log,knarr-*.log,kills.txt} and the suite's
# JUnit files in .cache/conformance/results, and prints one line "conformance: N passed, M failed".
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=$PWD/.cache/conformance
bin=${CONFORMANCE_BIN:-$cache/bin}
images=${CONFORMANCE_IMAGES:-$cache/images}
knarr=$PWD/bin/knarr
lists=() labels=${LABELS-Conformance}
if [ "${1:-}" = --list ]; then
  mapfile -t lists < <(realpath "${@:2}")
  labels=${LABELS-}
fi
labels=${labels:+($labels)}
[ "${SERVERS:-1}" = 1 ] || [ "$SERVERS" = 3 ] || { echo "run.sh: SERVERS=$SERVERS: 1 and 3 are possible" >&2; exit 2; }
[ -z "${KILLS:-}" ] || [ "${SERVERS:-1}" = 3 ] || { echo "run.sh: KILLS=1 needs SERVERS=3" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "run.sh: needs root" >&2; exit 1; }
hack/prerequisites.sh conformance
mkdir -p "$cache"
echo "progress: compiling upstream's suite"
test/conformance/build.sh "$bin"
echo "progress: making the suite's images"
test/conformance/images/images.sh "$images" "$bin" "$knarr"
csi= # whether CSI drivers and the snapshot controller are needed
if [ ${#lists[@]} -gt 0 ]; then
  ! grep -qE 'csi-hostpath|CSI Mock' "${lists[@]}" || csi=1
elif [[ $labels = *storage* ]]; then
  csi=1
fi
if [ -n "$csi" ]; then
  test/csi/build.sh "$bin"
  test/csi/images.sh "$images" "$bin" "$knarr"
fi
gates=${GATES:-} runtime=${RUNTIME:-}
if [ ${#lists[@]} -gt 0 ]; then
  # The suite marks a test with its gate, and with OffByDefault if the gate is off. The gates that
  # knarr can turn on have their kinds in one API.
  off=$({ grep -hvE '^[[:space:]]*#' "${lists[@]}" | grep -F '[Feature:OffByDefault]' | grep -oE '\[FeatureGate:[A-Za-z]+' || true; } | sed 's/.*://; s/$/=true/' | sort -u | paste -sd, -)
  if [ -n "$off" ]; then
    gates=${gates:-$off} runtime=${runtime:-scheduling.k8s.io/v1alpha2=true}
  fi
fi
# One test waits until a list's continue token has expired. With the default interval of five
# minutes that takes nine.
server_settings=(--compaction-interval "${COMPACTION:-30s}" ${gates:+--feature-gates "$gates"} ${runtime:+--runtime-config "$runtime"})
echo "progress: starting a cluster"

state=$(mktemp -d "${TMPDIR:-/tmp}/kc-XXXXXX")
cgroup=/knarr-conformance-$$
rm -rf "$cache/results" && mkdir -p "$cache/results"
source test/conformance/cluster.sh
source test/conformance/servers.sh
cluster_sweep
trap 'cluster_stop' EXIT
trap 'exit 130' INT TERM HUP
cluster_start

export KUBECONFIG=$kubeconfig
[ -z "$csi" ] || "${enter_net[@]}" test/csi/snapshots.sh "$bin/kubectl"
args=(--provider=skeleton --kubeconfig="$KUBECONFIG" --kubectl-path="$bin/kubectl" --report-dir="$cache/results" --node-os-distro=debian)
status=0
total= # number of tests to run, if known
# tell periodically prints how many tests have ended: ginkgo prints a dot for each.
tell() {
  while sleep "$([ -n "${STEPS:-}" ] && echo 5 || echo 15)"; do
    echo "progress: test $(grep -o '•' "$cache/e2e.log" | wc -l)${total:+ of $total}"
  done
}
ginkgo() { # ginkgo PROCS FILTER EXTRA…
  local procs=$1 filter=$2
  shift 2
  # In the background, since the shell handles a signal only between its own commands or while it
  # waits. In a process group, which cluster_stop kills as a whole.
  TMPDIR=$state/tmp setsid "${enter_net[@]}" "$bin/ginkgo" --procs="$procs" --timeout="${TIMEOUT:-50m}" --no-color --label-filter="$filter" "$@" \
    "$bin/e2e.test" -- "${args[@]}" --report-prefix="p$procs-" >>"$cache/e2e.log" 2>&1 &
  suite=$!
  started suite "$suite"
  tell &
  local teller=$!
  started part "$teller"
  wait "$suite" || status=$?
  suite=
  kill "$teller" 2>/dev/null || true
}
: >"$cache/e2e.log"
mkdir "$state/tmp"
# names prints the names in lists; pattern makes one regular expression of names.
names() { cat "$@" | grep -vE '^[[:space:]]*(#|$)' || true; }
pattern() { sed -E 's/[][().*+?{}|^$\\]/\\&/g' | paste -sd'|' -; }
# all_of FILE prints a regular expression of the names in a file, where " *" ends a beginning. The
# last one keeps an empty file from naming all tests.
all_of() { echo "($({ names "$1"; echo 'no test ends so'; } | pattern | sed -E 's/ \\\*(\||$)/ .*\1/g'))$"; }
extra=()
[ -z "${SKIP:-}" ] || extra+=(--skip="$SKIP")
parallel=yes serial=yes
case "${SERIAL:-}" in no) serial=no ;; only) parallel=no ;; esac
if [ -n "${KILLS:-}" ] && [ ${#lists[@]} -gt 0 ]; then
  names "${lists[@]}" | grep -vxF "$(names test/conformance/servers-excepted.txt)" >"$state/list"
  lists=("$state/list")
fi
if [ ${#lists[@]} -gt 0 ]; then
  total=$(names "${lists[@]}" | wc -l)
  extra+=(--focus="($(names "${lists[@]}" | pattern))$")
  # Each part of the run costs seconds, also without tests.
  names "${lists[@]}" | grep -F '[Serial]' >/dev/null || serial=no
  names "${lists[@]}" | grep -vF '[Serial]' >/dev/null || parallel=no
else
  [ -z "${FOCUS:-}" ] || extra+=(--focus="$FOCUS")
  [ "${KNOWN:-}" = 1 ] || extra+=(--skip="$(all_of test/conformance/fails-upstream.txt)")
  [ -z "${KILLS:-}" ] || extra+=(--skip="$(all_of test/conformance/servers-excepted.txt)")
fi
attempts=${ATTEMPTS:-${KILLS:+3}}
[ -z "$attempts" ] || extra+=(--flake-attempts="$attempts")
[ -z "${KILLS:-}" ] || servers_kill
[ $parallel = no ] || ginkgo "${PROCS:-8}" "${labels:+$labels && }!Serial" "${extra[@]}"
[ $serial = no ] || ginkgo 1 "${labels:+$labels && }Serial" "${extra[@]}"
(cd test/conformance && GOFLAGS="-buildvcs=false -trimpath" CGO_ENABLED=0 go run ./report "$cache/results" "$cache/results.md" "${lists[@]}")
exit $status
