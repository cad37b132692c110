#!/usr/bin/env bash
# run.sh [flags of go test, such as -run Pruning]: runs upstream's own integration tests of custom
# resources (k8s.io/apiextensions-apiserver) against knarr. Their sources are unchanged; only the
# file that starts a server is replaced. It prints the failures and the number of passed tests;
# .cache/integration/crd.log has the whole output. UPSTREAM=FOLDER uses etcd from there, KNARR=PATH
# another knarr than bin/knarr.
. "$(dirname "$0")/common.sh"

module=k8s.io/apiextensions-apiserver
mod=$cache/go.mod
rm -f "$mod"
show $module "$cache/upstream"
cat >"$cache/overlay.json" <<END
{"Replace": {"$cache/upstream/pkg/cmd/server/testing/testserver.go": "$PWD/crd/testserver.go"}}
END
skip=$(cannot crd/cannot.txt)
log=$cache/crd.log
telling "custom resources" "$log" '^ *--- (PASS|FAIL|SKIP)' session go test -modfile "$mod" -mod=mod -overlay "$cache/overlay.json" -vet=off -p 1 -count=1 -timeout 60m -v ${skip:+-skip "$skip"} "$@" \
  $module/test/integration $module/test/integration/conversion || true
grep -E '^ *--- FAIL|^FAIL|^panic:|cannot|build failed' "$log" || true
echo "custom resources: $(count PASS) passed, $(count FAIL) failed, $(count SKIP) skipped; $(grep -c '^Test' crd/cannot.txt) cannot"
grep -q '^ok' "$log" && ! grep -q '^FAIL' "$log"
