#!/usr/bin/env bash
# run.sh [flags of go test, such as -v]: runs suites of operator frameworks against knarr's API
# server. These are controller-runtime's own suites, which start servers by envtest, and the cases
# of the Gateway API: hundreds of objects that the rules of its definitions accept or refuse.
#
#   FOCUS=regexp   only suites whose name matches: pkg/client, ..., gateway/standard,
#                  gateway/experimental
#   ONLY=upstream  upstream's kube-apiserver instead, from the folder UPSTREAM or
#                  .cache/compare/bin
#   ONLY=knarrtest controller-runtime's suites with the package knarrtest/envtest instead of its
#                  pkg/envtest: the API server is in the tests' own process, and nothing else is
#                  built or started
#
# It prints a line for each suite; .cache/operators/SIDE has the logs. cannot.txt lists the tests
# that are skipped, with the reasons. UPSTREAM=FOLDER uses etcd from there; KNARR=PATH uses another
# knarr than bin/knarr.
set -euo pipefail
cd "$(dirname "$0")/../.."
. test/session.sh
top=$PWD
cache=$top/.cache/operators
side=${ONLY:-knarr}
programs=$cache/programs-$side
upstream=${UPSTREAM:-$top/.cache/compare/bin}
export GOFLAGS="-buildvcs=false -trimpath" CGO_ENABLED=0
mkdir -p "$programs" "$cache/$side"

etcd=$upstream/etcd
if [ "$side" != knarrtest ] && [ ! -x "$etcd" ]; then
  etcd=$cache/etcd
  [ -x "$etcd" ] || go build -C test/upstream -ldflags '-s -w' -o "$etcd" go.etcd.io/etcd/server/v3
fi
case $side in
knarr) server=$top/test/operators/kube-apiserver ;;
upstream) server=$upstream/kube-apiserver ;;
knarrtest) server=/bin/false ;; # a test that starts a server anyway fails
*) echo "run.sh: ONLY is upstream, knarrtest or nothing, not $side" >&2; exit 1 ;;
esac
[ -x "$server" ] || { echo "run.sh: $server is not there: make compare builds it, or UPSTREAM names its folder" >&2; exit 1; }
ln -sfn "$etcd" "$programs/etcd"
ln -sfn "$server" "$programs/kube-apiserver"
ln -sfn "$(command -v true)" "$programs/kubectl" # envtest looks for it; no test runs it
export KUBEBUILDER_ASSETS=$programs KNARR_BIN=${KNARR:-$top/bin/knarr}

cd test/operators
runtime=sigs.k8s.io/controller-runtime gateway=sigs.k8s.io/gateway-api
module=$cache/$side.mod # Go adds the modules that the suites' tests need to this copy
cp go.mod "$module"
cp go.sum "${module%.mod}.sum"
go mod download -modfile "$module" "$runtime" "$gateway"
definitions=$(go list -modfile "$module" -m -f '{{.Dir}}' $gateway)/config/crd
# knarrtest_envtest replaces their package by ours in a copy of their module. It removes those of
# the package's tests that are about binaries.
knarrtest_envtest() {
  local copy=$cache/controller-runtime
  rm -rf "$copy"
  cp -r "$(go list -modfile "$module" -m -f '{{.Dir}}' $runtime)" "$copy"
  chmod -R u+w "$copy"
  find "$copy/pkg/envtest" -maxdepth 1 -name '*.go' -not -name '*_test.go' -delete
  rm "$copy/pkg/envtest/binaries_test.go"
  sed -i '/Describe("Binary Path Handling"/,$d' "$copy/pkg/envtest/envtest_test.go"
  echo '})' >>"$copy/pkg/envtest/envtest_test.go"
  cp thin.go.txt "$copy/pkg/envtest/envtest.go"
  cat "$top/go.sum" >>"${module%.mod}.sum"
  go mod edit -require github.com/knarr-project/knarr@v0.0.0 -replace "github.com/knarr-project/knarr=$top" -replace "$runtime=$copy" "$module"
}
if [ "$side" = knarrtest ]; then
  knarrtest_envtest
else
  go build -modfile "$module" -mod=mod -o "$cache/withserver" ./withserver
fi
scratch=$(mktemp -d "${TMPDIR:-/tmp}/ko-XXXXXX") # short, since paths of sockets are limited
export TMPDIR=$scratch

failed=0
# suite NAME PACKAGE [FLAGS]: prints one line with the result
suite() {
  local name=$1 package=$2 log flags
  shift 2
  [[ $name =~ ${FOCUS:-.} ]] || return 0
  log=$cache/$side/${name//\//_}.log
  read -ra flags <<<"$(sed -n "s|^$name \([^#]*\)#.*|\1|p" cannot.txt)"
  if telling "$name" "$log" '^ *--- (PASS|FAIL|SKIP)|^•' session go test -modfile "$module" -mod=mod -vet=off -count=1 -timeout 20m -v "${more[@]}" "$@" "$package" "${flags[@]}"; then
    echo "$name: $(count PASS) passed"
  else
    failed=1
    echo "$name: $(count PASS) passed, $(count FAIL) failed"
    grep -E '^ *--- FAIL|^ *\[FAIL\]|^panic:|build failed' "$log" | sort -u || true
  fi
}
# count PASS|FAIL: Ginkgo's count or, without Ginkgo, Go's
count() {
  local word=Passed total
  [ "$1" = PASS ] || word=Failed
  total=$(sed 's/\x1b\[[0-9;]*m//g' "$log" | sed -nE "s/^(SUCCESS!|FAIL!) .* ([0-9]+) $word .*/\2/p" | tail -1)
  if [ "${total:-0}" = 0 ]; then
    total=$(grep -cE "^ *--- $1" "$log" || true)
  fi
  echo "$total"
}

more=("$@")
for package in builder cache client client/apiutil cluster controller controller/controllerutil envtest handler internal/controller internal/recorder \
  manager metrics/filters source webhook; do
  suite "pkg/$package" "$runtime/pkg/$package"
done
[ "$side" != knarrtest ] || exit "$failed" # the cases of the Gateway API do not use envtest
for channel in standard experimental; do
  suite "gateway/$channel" "$gateway/pkg/test/cel" -tags "$channel" -exec "$cache/withserver $definitions/$channel"
done
exit "$failed"
