#!/usr/bin/env bash
# unit.sh: runs the unit tests; those of the product's module use the race detector. hack/steps runs
# it and reads its output: `make unit`.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOFLAGS="-buildvcs=false -trimpath"
status=0
tests=()
# Tests write small files and wait for them; beside compilers, a disk answers late. GOTMPDIR is for
# what the compilers write; tests would take it too. The name is always the same, since Go's test
# cache depends on it. Some tests run programs or open devices in their folder.
memory=/dev/shm/k$(cksum <<<"$PWD" | cut -c 1-5)
if [ -z "${TMPDIR:-}" ] && [ "$(df --output=avail /dev/shm 2>/dev/null | tail -1)" -gt 4000000 ] 2>/dev/null &&
  ! grep -Eq '^[^ ]+ /dev/shm [^ ]+ [^ ]*(nodev|noexec)' /proc/mounts; then
  trap 'rm -rf "$memory"' EXIT
  mkdir -p "$memory"
  export GOTMPDIR=/tmp TMPDIR=$memory
  tests=(-exec 'env -u GOTMPDIR')
fi
make --no-print-directory runtime
packages=(./internal/... ./cmd/... ./knarrtest/... ./hack/... ./examples/...)
count() { "$@" | wc -l; }
echo "progress: packages $(count go list "${packages[@]}")"
echo "progress: packages 8" # runtime's, test/arch, test/docs, test/check, test/csi, test/scheduler, examples/operator-test
echo "progress: packages $(count go list -C test/compare . ./apidiff ./report)"

echo "progress: compiling for the race detector"
export CGO_ENABLED=1
go list -race -deps -test -f '{{if and (not .ForTest) (ne .Name "main") (ne .ImportPath "unsafe")}}{{.ImportPath}}{{end}}' "${packages[@]}" |
  xargs go build -race -v 2>&1 || status=1
echo "progress: compiling and linking the first tests"
# Tests spend much of their time waiting: three packages at a time keep two cores busy.
go test -race -vet=off -json -timeout 25m -p 3 -parallel 4 "${tests[@]}" "${packages[@]}" || status=1
# The flags are those of runtime/build.sh, so that its packages are found in the cache.
(. .cache/runtime/.tools/env && go test -C runtime -vet=off -json -timeout 10m -tags 'seccomp netgo osusergo inprocess no_grpc runc_nocriu' ./shim github.com/containerd/go-runc) || status=1
export CGO_ENABLED=0
# These tests run the go command and read files of the whole tree, so Go must not cache their
# results.
go test -vet=off -json -count=1 ./test/arch ./test/docs ./test/check || status=1
go test -C test/compare -vet=off -json -timeout 10m . ./apidiff ./report || status=1
go test -C test/csi -vet=off -json -timeout 10m ./driver || status=1
go test -C test/scheduler -vet=off -json -timeout 10m . || status=1
go test -C examples/operator-test -vet=off -json -timeout 10m . || status=1
exit $status
