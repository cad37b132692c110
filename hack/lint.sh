#!/usr/bin/env bash
# lint.sh: checks format, shell syntax, vet, static analysis, and that the product's module is tidy.
# It prints each problem with the remedy.
set -uo pipefail
cd "$(dirname "$0")/.."
export GOFLAGS="-buildvcs=false -trimpath" CGO_ENABLED=0
bad=0
say() { echo "lint: $*"; bad=1; }

echo "progress: 1 of 5: format, shell syntax, tidy"
unformatted=$(git ls-files '*.go' | xargs -r gofmt -l)
[ -z "$unformatted" ] || say "run gofmt -w on: $unformatted"
for script in $(git ls-files '*.sh' .ci/run); do
  bash -n "$script" || say "$script has a syntax error"
done
go mod tidy -diff >/dev/null 2>&1 || say "run go mod tidy"

echo "progress: 2 of 5: go vet"
go vet ./... || say "go vet found something"
# Other modules than the product's: the packages that build without Kubernetes' own sources and
# without C.
beside() { go vet -C "$@" || say "go vet found something in $1"; }
echo "progress: 3 of 5: go vet of the other modules"
beside test/compare . ./apidiff ./report ./plots
beside test/conformance ./report
beside test/interop ./controller
beside test/integration ./harness ./crd
beside test/operators ./withserver
beside test/field . ./writer
beside test/envtest .
beside test/csi ./...
beside test/ui .
beside test/scheduler .
beside examples/operator-test .
beside runtime ./cni ./containerd ./pack
beside hack/release .

# Build it once, because `go run` would link it again for each module.
staticcheck=$PWD/.cache/bin/staticcheck@v0.7.0
if [ ! -x "$staticcheck" ]; then
  GOBIN=$PWD/.cache/bin/new go install "honnef.co/go/tools/cmd/staticcheck@${staticcheck#*@}" && mv .cache/bin/new/staticcheck "$staticcheck" && rmdir .cache/bin/new
fi
echo "progress: 4 of 5: staticcheck"
"$staticcheck" ./... || say "staticcheck found something"
echo "progress: 5 of 5: staticcheck of test/compare"
(cd test/compare && "$staticcheck" . ./apidiff ./report ./plots) || say "staticcheck found something in test/compare"
exit $bad
