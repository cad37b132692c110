#!/usr/bin/env bash
# lint.sh: format, vet, static checks, and that modules are tidy. Prints what is wrong and how to mend it.
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
go mod tidy -diff >/dev/null 2>&1 || say "run go mod tidy"
for script in $(git ls-files '*.sh' .ci/run); do
  bash -n "$script" || say "$script has a syntax error"
done
exit $bad
