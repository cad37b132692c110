#!/usr/bin/env bash
# run.sh: runs real databases on a new cluster of one server and three nodes, which is removed
# afterwards. It builds CloudNativePG from its Go module, and the databases' image from Debian's
# packages. It prints its progress and then a table of figures; .cache/field has the logs.
#
#   ONLY=postgresql|mariadb  one database alone
#   KEEP=1                   leaves the cluster running until Ctrl-C
#   BUILD=1                  builds the programs and images, and runs nothing
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=$PWD/.cache/field
bin=$cache/bin
knarr=${KNARR:-$PWD/bin/knarr}
[ "$(id -u)" = 0 ] || { echo "run.sh: needs root" >&2; exit 1; }
[ -x "$knarr" ] || { echo "run.sh: $knarr is not there; make build makes it" >&2; exit 1; }
hack/prerequisites.sh field
mkdir -p "$bin"
export GOFLAGS="-buildvcs=false -trimpath" CGO_ENABLED=0
cd test/field
operator=github.com/cloudnative-pg/cloudnative-pg
echo "progress: compiling the operator"
go build -ldflags '-s -w' -o "$bin/" "$operator/cmd/manager" ./writer
go build -o "$bin/field" .
version=$(go list -m -f '{{.Version}}' $operator)
manifest=$(go list -m -f '{{.Dir}}' $operator)/releases/cnpg-${version#v}.yaml
echo "progress: making the images"
./images.sh "$cache/images" "$bin" "$knarr"
[ -z "${BUILD:-}" ] || exit 0
exec "$bin/field" --knarr "$knarr" --images "$cache/images" --cache "$cache" --operator "$manifest" --only "${ONLY:-postgresql,mariadb}" ${KEEP:+--keep}
