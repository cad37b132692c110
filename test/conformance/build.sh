#!/usr/bin/env bash
# build.sh OUT [kubectl|node]: builds upstream's e2e.test, ginkgo, kubectl and the programs of the
# suite's images into OUT, from their Go modules; or kubectl alone; or the suite of the node alone.
set -euo pipefail
mkdir -p "$1"
out=$(cd "$1" && pwd)
cd "$(dirname "$0")"
# The same flags as in the Makefile, so that the build cache is shared.
export GOFLAGS="-buildvcs=false -trimpath" CGO_ENABLED=0
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
# Keep what the same script has built from the same modules.
key="$version $(cat go.mod go.sum build.sh coredns/* | sha256sum | cut -d' ' -f1)"
kept=$out/.version
[ "${2:-}" != node ] || kept=$out/.version-node
[ "$(cat "$kept" 2>/dev/null)" = "$key" ] && exit 0
stamp="-X k8s.io/component-base/version.gitVersion=$version -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36 -X k8s.io/component-base/version.gitTreeState=clean"
if [ "${2:-}" = node ]; then
  go test -c -ldflags "-s -w $stamp" -o "$out/e2e_node.test" k8s.io/kubernetes/test/e2e_node
  echo "$key" >"$kept"
  exit 0
fi
go build ${STEPS:+-v} -ldflags "-s -w $stamp" -o "$out/" k8s.io/kubernetes/cmd/kubectl
[ "${2:-}" != kubectl ] || exit 0
# go test does not print the packages that it compiles
[ -z "${STEPS:-}" ] || go build -v k8s.io/kubernetes/test/e2e
go test -c -ldflags "-s -w $stamp" -o "$out/e2e.test" k8s.io/kubernetes/test/e2e
go build ${STEPS:+-v} -ldflags '-s -w' -o "$out/" github.com/onsi/ginkgo/v2/ginkgo k8s.io/kubernetes/test/images/{agnhost,resource-consumer,resource-consumer/consume-cpu,sample-device-plugin,regression-issue-74839} \
  k8s.io/sample-apiserver
go build -C coredns ${STEPS:+-v} -ldflags '-s -w' -o "$out/coredns" .
go build ${STEPS:+-v} -ldflags '-s -w' -o "$out/etcd" go.etcd.io/etcd/server/v3
echo "$key" >"$kept"
