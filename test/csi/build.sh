#!/usr/bin/env bash
# build.sh OUT: builds the CSI driver for tests and the programs beside it into OUT, from their Go
# modules.
set -euo pipefail
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")"
# The same flags as in the Makefile, so that the build cache is shared.
export GOFLAGS="-buildvcs=false -trimpath" CGO_ENABLED=0
go build ${STEPS:+-v} -ldflags '-s -w' -o "$out/csitest" ./csitest
go build ${STEPS:+-v} -ldflags '-s -w' -o "$out/" github.com/kubernetes-csi/external-attacher/v4/cmd/csi-attacher \
  github.com/kubernetes-csi/external-snapshotter/v8/cmd/{csi-snapshotter,snapshot-controller}
