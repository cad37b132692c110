# What run.sh and kube.sh begin with: where things are, the programs, and a folder for temporary files.
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

# Go replaces no file below its module cache: a module is shown to it under another path. show MODULE LINK; the copy of go.mod in $mod says so.
show() {
  [ -e "$mod" ] || { cp go.mod "$mod" && cp go.sum "${mod%.mod}.sum"; }
  go mod download -modfile "$mod" "$1"
  ln -sfn "$(go list -modfile "$mod" -m -f '{{.Dir}}' "$1")" "$2"
  go mod edit -replace "$1=$2" "$mod"
}

# What a test that is killed does not remove goes with this folder; with KNARR_KEEP the servers' folders stay, where temporary files are.
if [ -z "${KNARR_KEEP:-}" ]; then
  scratch=$(mktemp -d "${TMPDIR:-/tmp}/ki-XXXXXX") # short: sockets lie below it
  export TMPDIR=$scratch
fi

# cannot FILE [PACKAGE]: the names in a list of tests that knarr can not pass, as a regular expression.
cannot() { sed -n "s|^${2:+$2 }\(Test[^ /]*\)\([^ ]*\) .*|^\1\$\2|p" "$1" | paste -sd'|'; }
count() { grep -acE "^--- $1" "$log" || true; }
