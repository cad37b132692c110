#!/usr/bin/env bash
# run.sh [--only knarr|upstream] [--scale 0.2] [--skip KEYS]: builds upstream's binaries from their
# module, runs the same load against upstream and knarr one after the other, and prints the table of
# budgets. Needs root. Writes table.md, figures.json, the plots and logs/ to .cache/compare.
# docs/internals/performance.md explains how figures.json gets into the documentation.
#
# run.sh --interchange [--layouts NAMES]: runs clusters with parts of both sides instead, and prints
# the results. The table is .cache/compare/interchange.md.
#
# run.sh --scheduler [--workloads NAMES] [--nodes NUMBERS]: runs the workloads of upstream's
# scheduler_perf over the API instead. The figures are in .cache/compare/scheduler.
#
# run.sh --terms: measures single objects and heartbeats. The table is .cache/compare/terms.md.
#
#   COMPARE_BIN=DIR     uses existing binaries of upstream instead of building them
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=$PWD/.cache/compare
runtime=$PWD/.cache/runtime
[ "$(id -u)" = 0 ] || { echo "run.sh: needs root" >&2; exit 1; }
rm -rf "$cache/logs" && mkdir -p "$cache/bin" "$cache/logs"
export GOFLAGS="-trimpath -buildvcs=false" CGO_ENABLED=0

version=$(go list -C test/upstream -m -f '{{.Version}}' k8s.io/kubernetes)
commit=$(git describe --always --dirty --exclude '*' 2>/dev/null || echo unknown)

# upstream_binaries puts all programs of upstream's side into $cache/bin. It removes programs of
# another version.
upstream_binaries() {
  local name package missing=() stamp
  [ "$(cat "$cache/bin/.version" 2>/dev/null)" = "$version" ] || { rm -rf "$cache/bin" && mkdir -p "$cache/bin"; }
  for package in k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager,kube-scheduler,kubelet,kubectl} \
    github.com/containernetworking/plugins/plugins/{main/bridge,ipam/host-local}; do
    name=${package##*/}
    if [ -n "${COMPARE_BIN:-}" ] && [ -x "$COMPARE_BIN/$name" ]; then
      ln -sf "$(realpath "$COMPARE_BIN")/$name" "$cache/bin/$name"
    elif [ ! -x "$cache/bin/$name" ]; then
      missing+=("$package")
    fi
  done
  stamp="-s -w -X k8s.io/component-base/version.gitVersion=$version"
  if [ ${#missing[@]} -gt 0 ]; then
    echo "run.sh: building ${missing[*]##*/}" >&2
    go build -C test/upstream -ldflags "$stamp" -o "$cache/bin/" "${missing[@]}"
  fi
  if [ -n "${COMPARE_BIN:-}" ] && [ -x "$COMPARE_BIN/etcd" ]; then
    ln -sf "$(realpath "$COMPARE_BIN")/etcd" "$cache/bin/etcd"
  elif [ ! -x "$cache/bin/etcd" ]; then
    go build -C test/upstream -ldflags '-s -w' -o "$cache/bin/etcd" go.etcd.io/etcd/server/v3
  fi
  echo "$version" >"$cache/bin/.version"
  [ -x "$runtime/containerd" ] || CGO_ENABLED=1 runtime/build.sh "$runtime"
  cp -u "$runtime"/{containerd,runc,pause} "$cache/bin/"
  # containerd's own shim executes runc for each container. Ours has another library in place of
  # go-runc.
  cp runtime/go.mod "$cache/shim.mod"
  cp runtime/go.sum "$cache/shim.sum"
  go mod edit -dropreplace github.com/containerd/go-runc -dropreplace github.com/knarr-project/knarr/runtime/go-runc \
    -droprequire github.com/knarr-project/knarr/runtime/go-runc "$cache/shim.mod"
  go build -C runtime -mod=mod -modfile "$cache/shim.mod" -ldflags '-s -w' -o "$cache/bin/" github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2
}
case " $* " in
*" --only knarr "*) ;;
*) upstream_binaries ;;
esac
go build -C test/compare -o "$cache/compare" .
table=$cache/table.md
figures=$cache
case " $* " in
*" --interchange "*)
  table=$cache/interchange.md
  go build -ldflags '-s -w' -o "$cache/sailor" ./test/e2e/sailor
  ;;
*" --terms "*) table=$cache/terms.md ;;
*" --scheduler "*)
  figures=$cache/scheduler
  mkdir -p "$figures"
  table=$figures/table.md
  ;;
esac

# The harness leaves nothing outside of this folder. On a signal it cleans up.
state=$(mktemp -d "${TMPDIR:-/tmp}/kcmp-XXXXXX")
trap 'rm -rf "$state"' EXIT
trap 'kill -TERM "$harness" 2>/dev/null || true' INT TERM HUP
"$cache/compare" --knarr "$PWD/bin/knarr" --upstream "$cache/bin" --state "$state" --out "$table" --figures "$figures" --commit "$commit" --release "$version" \
  --logs "$cache/logs" --sailor "$cache/sailor" "$@" &
harness=$!
status=0
wait "$harness" || status=$?
while kill -0 "$harness" 2>/dev/null; do wait "$harness" || status=$?; done
exit $status
