#!/usr/bin/env bash
# run.sh [go test's flags, such as -run Pruning]: upstream's own integration tests of custom resources (k8s.io/apiextensions-apiserver) against knarr.
# Their sources stay where they are; only the file that starts a server is ours. Prints what failed and how many passed;
# .cache/integration/crd.log has everything. UPSTREAM=FOLDER takes etcd from there, KNARR=PATH another knarr than bin/knarr.
set -euo pipefail
cd "$(dirname "$0")/../.."
top=$PWD
cache=$top/.cache/integration
etcd=${UPSTREAM:-$cache}/etcd
mkdir -p "$cache"
export GOFLAGS="-buildvcs=false -trimpath" CGO_ENABLED=0
export KNARR_BIN=${KNARR:-$top/bin/knarr} ETCD_BIN=$etcd
[ -x "$etcd" ] || (cd test/compare && go build -mod=mod -ldflags '-s -w' -o "$etcd" go.etcd.io/etcd/server/v3)

# Go replaces no file below its module cache: the module is shown to it under another path.
cd test/integration
module=k8s.io/apiextensions-apiserver
go mod download $module
ln -sfn "$(go list -m -f '{{.Dir}}' $module)" "$cache/upstream"
cp go.mod "$cache/go.mod"
cp go.sum "$cache/go.sum"
go mod edit -replace "$module=$cache/upstream" "$cache/go.mod"
cat >"$cache/overlay.json" <<END
{"Replace": {"$cache/upstream/pkg/cmd/server/testing/testserver.go": "$PWD/crd/testserver.go"}}
END
skip=$(sed -n 's/^\(Test[^ ]*\) .*/\1/p' crd/cannot.txt | paste -sd'|')
log=$cache/crd.log
go test -modfile "$cache/go.mod" -mod=mod -overlay "$cache/overlay.json" -vet=off -p 1 -count=1 -timeout 60m -v ${skip:+-skip "$skip"} "$@" \
  $module/test/integration $module/test/integration/conversion >"$log" 2>&1 || true
grep -E '^ *--- FAIL|^FAIL|^panic:|cannot|build failed' "$log" || true
count() { grep -cE "^--- $1" "$log" || true; }
echo "custom resources: $(count PASS) passed, $(count FAIL) failed, $(count SKIP) skipped; $(grep -c '^Test' crd/cannot.txt) cannot"
grep -q '^ok' "$log" && ! grep -q '^FAIL' "$log"
