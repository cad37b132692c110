#!/usr/bin/env bash
# vulncheck.sh: finds known vulnerabilities in the code that the binary and the included programs
# call. It needs Go's vulnerability database; GOVULNDB is the URL of a copy (file:///... or
# https://...). Without a database it prints an error and exits with status 3.
set -uo pipefail
cd "$(dirname "$0")/.."
database=${GOVULNDB:-https://vuln.go.dev}
export GOVULNDB=$database CGO_ENABLED=1
tool=$PWD/.cache/tools
mkdir -p "$tool"
GOBIN=$tool go install golang.org/x/vuln/cmd/govulncheck@v1.9.0 || exit 1
bad=0
check() {
  echo "checking $*"
  local output
  output=$(cd "$1" && shift && "$tool/govulncheck" "$@" 2>&1)
  local status=$?
  printf '%s\n' "$output"
  case "$output" in *"fetching vulnerabilities"*|*"no such host"*|*"connection refused"*|*"vulndb"*"error"*)
    echo "vulncheck.sh: the database $database is not reachable: nothing was checked. GOVULNDB names a copy" >&2
    exit 3 ;;
  esac
  [ $status -eq 0 ] || bad=1
}
check . ./cmd/knarr
check runtime ./containerd ./cni ./shim github.com/opencontainers/runc
exit $bad
