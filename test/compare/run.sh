#!/usr/bin/env bash
# run.sh [--only knarr|upstream] [--scale 0.2] [--skip KEYS]: builds upstream's binaries from their module, runs the same load
# against upstream and knarr in turn, and prints the table of budgets. Writes .cache/compare/table.md. Needs root.
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=$PWD/.cache/compare
mkdir -p "$cache/bin"
[ "$(id -u)" = 0 ] || { echo "run.sh: needs root" >&2; exit 1; }
state=$(mktemp -d "${TMPDIR:-/tmp}/kcmp-XXXXXX")
trap 'rm -rf "$state"' EXIT
cd test/compare
export GOFLAGS="-mod=mod -buildvcs=false"
case " $* " in
*" --only knarr "*) ;;
*)
  if [ ! -e "$cache/bin/.done" ]; then
    CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$cache/bin/etcd" go.etcd.io/etcd/server/v3
    CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3" -o "$cache/bin/" \
      k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kube-controller-manager k8s.io/kubernetes/cmd/kube-scheduler k8s.io/kubernetes/cmd/kubelet k8s.io/kubernetes/cmd/kubectl \
      github.com/containernetworking/plugins/plugins/main/bridge github.com/containernetworking/plugins/plugins/ipam/host-local
    touch "$cache/bin/.done"
  fi
  cp -u ../../.cache/runtime/{containerd,containerd-shim-runc-v2,runc,pause} "$cache/bin/"
  ;;
esac
CGO_ENABLED=0 go build -o "$cache/compare" .
"$cache/compare" --knarr ../../bin/knarr --upstream "$cache/bin" --state "$state" --out "$cache/table.md" "$@"
