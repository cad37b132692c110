#!/usr/bin/env bash
# run.sh [--n 2000] [--seed 1] [--only KIND,KIND] [--first 1] [--bodies] [--examples 1]: sends the
# same requests to upstream's kube-apiserver and to knarr's, and prints the differences of the
# answers by shape. .cache/compare/api.txt has an example of each. UPSTREAM=FOLDER uses upstream's
# binaries in that folder.
set -euo pipefail
cd "$(dirname "$0")/../../.."
cache=$PWD/.cache/compare
bin=$(realpath -m "${UPSTREAM:-$cache/bin}")
mkdir -p "$cache" "$bin"
state=$(mktemp -d "${TMPDIR:-/tmp}/kapidiff-XXXXXX")
trap 'rm -rf "$state"' EXIT
export GOFLAGS="-trimpath -buildvcs=false" CGO_ENABLED=0
if [ ! -x "$bin/kube-apiserver" ] || [ ! -x "$bin/etcd" ]; then
  go build -C test/upstream -ldflags '-s -w' -o "$bin/etcd" go.etcd.io/etcd/server/v3
  go build -C test/upstream -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=v1.36.3" -o "$bin/" k8s.io/kubernetes/cmd/kube-apiserver
fi
go build -C test/compare -o "$cache/apidiff" ./apidiff
"$cache/apidiff" --knarr "$PWD/bin/knarr" --upstream "$bin" --state "$state" --out "$cache/api.txt" "$@"
