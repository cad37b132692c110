#!/usr/bin/env bash
# unit.sh: the unit tests, the product's with the race detector. Run by hack/steps, which reads its output: `make unit`.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOFLAGS="-buildvcs=false -trimpath"
status=0
make --no-print-directory runtime
packages=(./internal/... ./cmd/... ./knarrtest/... ./hack/... ./examples/...)
count() { "$@" | wc -l; }
echo "progress: packages $(count go list "${packages[@]}")"
echo "progress: packages 5" # runtime's, test/arch, test/docs, examples/operator-test
echo "progress: packages $(count go list -C test/compare . ./apidiff ./report)"

echo "progress: compiling for the race detector"
export CGO_ENABLED=1
go list -race -deps -test -f '{{if and (not .ForTest) (ne .Name "main") (ne .ImportPath "unsafe")}}{{.ImportPath}}{{end}}' "${packages[@]}" |
  xargs go build -race -v 2>&1 || status=1
echo "progress: compiling and linking the first tests"
# Tests wait a good part of their time: three packages at a time keep two cores busy.
go test -race -vet=off -json -timeout 25m -p 3 -parallel 4 "${packages[@]}" || status=1
# As runtime/build.sh compiles the shim: what it has compiled is found in the cache.
(. .cache/runtime/.tools/env && go test -C runtime -vet=off -json -timeout 10m -tags 'seccomp netgo osusergo inprocess no_grpc runc_nocriu' ./shim github.com/containerd/go-runc) || status=1
export CGO_ENABLED=0
# Their tests run the go command and read files of the whole tree, which Go's cache of results does not see.
go test -vet=off -json -count=1 ./test/arch ./test/docs || status=1
go test -C test/compare -vet=off -json -timeout 10m . ./apidiff ./report || status=1
go test -C examples/operator-test -vet=off -json -timeout 10m . || status=1
exit $status
