#!/usr/bin/env bash
# run.sh: runs kubectl's own command suite (test/cmd of k8s.io/kubernetes) against upstream's
# control plane and against knarr's, each in its own namespaces. It prints the functions that pass
# on upstream and fail on knarr.
#
#   FOCUS=regexp     functions whose name matches (default: all); run_nodes_tests passes only
#                    after the first minute, on either side
#   ONLY=knarr       one side alone: knarr or upstream
#   UPSTREAM=FOLDER  upstream's binaries; the default is .cache/compare/bin, if it has the same
#                    version; missing ones are built
#
# It writes .cache/kubectl/{upstream,knarr}/FUNCTION.log and .cache/kubectl/results.md. It fails if
# a side does not finish, if knarr fails a function that upstream passes, and, for one side alone,
# if that side fails any function.
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=$PWD/.cache/kubectl
bin=${UPSTREAM:-$PWD/.cache/compare/bin}
sides=(upstream knarr)
case ${ONLY:-} in
'') ;;
knarr | upstream) sides=("$ONLY") ;;
*) echo "run.sh: ONLY is knarr or upstream, not $ONLY" >&2; exit 1 ;;
esac
[ "$(id -u)" = 0 ] || { echo "run.sh: needs root" >&2; exit 1; }
hack/prerequisites.sh kubectl
mkdir -p "$cache"
export GOFLAGS="-trimpath -buildvcs=false" CGO_ENABLED=0
go mod download -C test/upstream k8s.io/kubernetes
version=$(go list -C test/upstream -m -f '{{.Version}}' k8s.io/kubernetes)
source=$(go list -C test/upstream -m -f '{{.Dir}}' k8s.io/kubernetes)
stamp="-s -w -X k8s.io/component-base/version.gitVersion=$version -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36"
stamp+=" -X k8s.io/component-base/version.gitTreeState=clean"
# Do not use existing binaries of another version, except from the folder that the caller names.
[ "$(cat "$cache/bin/.version" 2>/dev/null)" = "$version" ] || rm -rf "$cache/bin"
mkdir -p "$cache/bin"
find "$cache/bin" -type l -delete # links of an earlier run
[ -n "${UPSTREAM:-}" ] || [ "$(cat "$bin/.version" 2>/dev/null)" = "$version" ] || bin=
for name in etcd kube-apiserver kube-controller-manager kubectl kubectl-convert; do
  if [ -n "$bin" ] && [ -x "$bin/$name" ]; then
    ln -sf "$(realpath "$bin")/$name" "$cache/bin/$name"
  elif [ ! -x "$cache/bin/$name" ]; then
    package=k8s.io/kubernetes/cmd/$name
    [ "$name" != etcd ] || package=go.etcd.io/etcd/server/v3
    go build -C test/upstream -ldflags "$stamp" -o "$cache/bin/$name" "$package"
  fi
done
echo "$version" >"$cache/bin/.version"
ln -sf "$PWD/bin/knarr" "$cache/bin/knarr"

state=$(mktemp -d "${TMPDIR:-/tmp}/kubectl-suite-XXXXXX")
trap 'rm -rf "$state"' EXIT
running=
trap '[ -z "$running" ] || kill "$running" || true; wait || true; exit 130' INT TERM HUP
broken=0
for side in "${sides[@]}"; do
  mkdir -p "$state/$side/tmp" "$state/$side/_output"
  for part in hack/lib hack/testdata test/cmd test/fixtures test/e2e/testing-manifests third_party/forked/shell2junit; do
    mkdir -p "$state/$side/$part"
    cp -r "$source/$part/." "$state/$side/$part"
  done
  # Files in the module cache are neither executable nor writable.
  chmod -R u+rwx "$state/$side"
  find "$state/$side/test/cmd" "$state/$side/third_party" -name '*.sh' -exec sed -i -E "s,(/var)?/tmp/,$state/$side/tmp/,g" {} +
  ln -s "$cache/bin" "$state/$side/_output/bin"
  rm -rf "${cache:?}/$side" && mkdir -p "$cache/$side"
  # All processes of the side end with it. The hour only limits a hang.
  TMPDIR=$state/$side/tmp FOCUS=${FOCUS:-} timeout --kill-after 10 1h env --chdir="$state/$side" \
    unshare --net --pid --fork --kill-child --mount-proc bash "$PWD/test/kubectl/side.sh" "$side" "$cache/$side" &
  running=$!
  wait "$running" || { echo "run.sh: $side did not come to its end" >&2; broken=1; }
  [ -s "$cache/$side/results" ] || { echo "run.sh: $side ran nothing" >&2; broken=1; }
  running=
done

verdicts() { sort "$cache/$1/results" 2>/dev/null || true; }
join -a1 -a2 -e '-' -o 0,1.2,2.2 <(verdicts upstream) <(verdicts knarr) >"$state/table"
{
  echo '| function | upstream | knarr |'
  echo '|---|---|---|'
  awk '{print "| " $1 " | " $2 " | " $3 " |"}' "$state/table"
} >"$cache/results.md"
awk -v about="$cache" -v alone="${ONLY:-}" -v broken="$broken" '
  $2 == "passed" {upstream++}
  $3 == "passed" {knarr++}
  alone == "" && $2 == "passed" && $3 != "passed" {print "knarr differs: " $1 " (" about "/knarr/" $1 ".log)"; differ++}
  alone != "" && ($2 == "failed" || $3 == "failed") {print alone " fails: " $1 " (" about "/" alone "/" $1 ".log)"; failed++}
  END {printf "kubectl: %d functions; upstream passes %d, knarr %d; %d differ\n", NR, upstream, knarr, differ; exit differ > 0 || failed > 0 || broken || NR == 0}' "$state/table"
