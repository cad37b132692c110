# The common beginning of run.sh and kube.sh: paths, programs, and a folder for temporary files.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
. test/session.sh
top=$PWD
cache=$top/.cache/integration
etcd=${UPSTREAM:-$cache}/etcd
mkdir -p "$cache"
export GOFLAGS="-buildvcs=false -trimpath" CGO_ENABLED=0
export KNARR_BIN=${KNARR:-$top/bin/knarr} ETCD_BIN=$etcd
[ -x "$etcd" ] || go build -C test/upstream -ldflags '-s -w' -o "$etcd" go.etcd.io/etcd/server/v3
cd test/integration

# show MODULE LINK: Go's overlay replaces no file in the module cache, so the module gets another
# path. The copy of go.mod in $mod names it.
show() {
  [ -e "$mod" ] || { cp go.mod "$mod" && cp go.sum "${mod%.mod}.sum"; }
  go mod download -modfile "$mod" "$1"
  ln -sfn "$(go list -modfile "$mod" -m -f '{{.Dir}}' "$1")" "$2"
  go mod edit -replace "$1=$2" "$mod"
}

# Files that a killed test leaves are removed with this folder. With KNARR_KEEP the servers' folders
# stay in the usual place for temporary files.
if [ -z "${KNARR_KEEP:-}" ]; then
  scratch=$(mktemp -d "${TMPDIR:-/tmp}/ki-XXXXXX") # short, since paths of sockets are limited
  export TMPDIR=$scratch
fi

# cannot FILE [PACKAGE]: the names in a list of tests that knarr cannot pass, as a regular
# expression.
cannot() { sed -n "s|^${2:+$2 }\(Test[^ /]*\)\([^ ]*\) .*|^\1\$\2|p" "$1" | paste -sd'|'; }
count() { grep -acE "^--- $1" "$log" || true; }
