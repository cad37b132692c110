#!/usr/bin/env bash
# lint.sh: format, vet, static checks, and that the product's module is tidy. Prints what is wrong and how to mend it.
set -uo pipefail
cd "$(dirname "$0")/.."
export GOFLAGS="-buildvcs=false -trimpath" CGO_ENABLED=0
bad=0
say() { echo "lint: $*"; bad=1; }

unformatted=$(git ls-files '*.go' | xargs -r gofmt -l)
[ -z "$unformatted" ] || say "run gofmt -w on: $unformatted"
go vet ./... || say "go vet found something"
staticcheck=honnef.co/go/tools/cmd/staticcheck@v0.7.0
go run "$staticcheck" ./... || say "staticcheck found something"
# The modules beside the product's: what of them builds without Kubernetes' own sources and without C.
beside() { (cd "$1" && shift && go vet "$@") || say "go vet found something in $1"; }
beside test/compare . ./apidiff
beside test/conformance ./report
beside test/interop ./controller
beside test/integration ./harness ./crd
beside test/operators ./withserver
beside runtime ./cni ./containerd ./pack
(cd test/compare && go run "$staticcheck" . ./apidiff) || say "staticcheck found something in test/compare"
go mod tidy -diff >/dev/null 2>&1 || say "run go mod tidy"
for script in $(git ls-files '*.sh' .ci/run); do
  bash -n "$script" || say "$script has a syntax error"
done
exit $bad
