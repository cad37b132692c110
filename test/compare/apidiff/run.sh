#!/usr/bin/env bash
# run.sh [--n 2000] [--seed 1] [--only KIND,KIND] [--first 1] [--bodies] [--examples 1]: the same requests to upstream's kube-apiserver and to knarr's; prints how the
# answers differ, by shape; .cache/compare/api.txt has an example of each. UPSTREAM=FOLDER takes upstream's binaries from there.
set -euo pipefail
cd "$(dirname "$0")/../../.."
cache=$PWD/.cache/compare
bin=${UPSTREAM:-$cache/bin}
mkdir -p "$cache" "$bin"
state=$(mktemp -d "${TMPDIR:-/tmp}/kapidiff-XXXXXX")
trap 'rm -rf "$state"' EXIT
cd test/compare
export GOFLAGS="-mod=mod -buildvcs=false"
if [ ! -x "$bin/kube-apiserver" ] || [ ! -x "$bin/etcd" ]; then
  CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$bin/etcd" go.etcd.io/etcd/server/v3
  CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3" -o "$bin/" k8s.io/kubernetes/cmd/kube-apiserver
fi
CGO_ENABLED=0 go build -trimpath -o "$cache/apidiff" ./apidiff
"$cache/apidiff" --knarr ../../bin/knarr --upstream "$bin" --state "$state" --out "$cache/api.txt" "$@"
