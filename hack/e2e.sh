#!/usr/bin/env bash
# e2e.sh: tests with real clusters and containers, and with servers that are killed under load.
# hack/steps runs it and reads its output: `make e2e`.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOFLAGS="-buildvcs=false -trimpath" CGO_ENABLED=0
packages=(./test/e2e/... ./test/chaos/...)
echo "progress: compiling the tests"
echo "progress: tests $(go test -list '^Test' "${packages[@]}" | grep -c '^Test')"
# Clusters mostly wait: three at a time keep two cores busy.
exec go test -vet=off -count=1 -json -timeout 30m -parallel 3 "${packages[@]}"
