#!/usr/bin/env bash
# programs.sh: compiles the programs that e2e and conformance run beside knarr, and makes the
# conformance suite's images.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOFLAGS="-buildvcs=false -trimpath" CGO_ENABLED=0
cache=$PWD/.cache/conformance
echo "progress: compiling upstream's suite and the programs of its images"
test/conformance/build.sh "${CONFORMANCE_BIN:-$cache/bin}"
echo "progress: the suite's images"
test/conformance/images/images.sh "${CONFORMANCE_IMAGES:-$cache/images}" "${CONFORMANCE_BIN:-$cache/bin}" bin/knarr
echo "progress: compiling the programs of e2e"
mkdir -p .cache/e2e
go build -C test/interop -v -ldflags '-s -w' -o "$PWD/.cache/e2e/" helm.sh/helm/v4/cmd/helm ./controller
go build -C test/csi -v -ldflags '-s -w' -o "$PWD/.cache/e2e/" ./csitest
# internal/failpoint: a knarr whose points tests can interrupt.
go build -trimpath -ldflags "-s -w -X github.com/knarr-project/knarr/internal/failpoint.enabled=1" -o .cache/e2e/knarr-failpoints ./cmd/knarr
