#!/usr/bin/env bash
# downloads.sh: downloads the modules that later steps compile, and unpacks Debian's packages for
# the conformance suite's images. It mostly waits for the network, so it runs while Go compiles
# knarr.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOFLAGS="-buildvcs=false -trimpath" CGO_ENABLED=0
echo "progress: modules of the conformance suite and of the tests"
go list -C test/conformance -deps k8s.io/kubernetes/test/e2e k8s.io/kubernetes/test/images/agnhost k8s.io/kubernetes/cmd/kubectl \
  k8s.io/sample-apiserver github.com/onsi/ginkgo/v2/ginkgo >/dev/null
go list -C test/interop -deps helm.sh/helm/v4/cmd/helm ./controller >/dev/null
go list -C test/csi -deps -test ./... >/dev/null
go list -deps -test ./... >/dev/null
for module in test/{compare,envtest,integration,operators,scheduler} examples/operator-test hack/release; do
  go list -C "$module" -deps -test ./... >/dev/null
done
test/conformance/images/roots.sh "${CONFORMANCE_IMAGES:-$PWD/.cache/conformance/images}/roots"
