#!/usr/bin/env bash
# run.sh [COMMIT]: builds knarr of an older commit beside the present one, and upgrades a cluster
# from one to the other and back (TestUpgradeFromAnotherBuild). Without COMMIT it takes the newest
# commit that is at least seven days old. A younger history has the last commit of the first day on
# which there was a program. Needs root and `make build`.
set -euo pipefail
cd "$(dirname "$0")/../.."
[ "$(id -u)" = 0 ] || { echo "run.sh: needs root" >&2; exit 1; }
commit=${1:-$(git rev-list -1 --before='7 days ago' HEAD)}
if [ -z "${1:-}" ] && ! git cat-file -e "${commit:-none}:cmd/knarr/main.go" 2>/dev/null; then
  first=$(git log --diff-filter=A --format=%ct HEAD -- cmd/knarr/main.go | tail -n 1)
  commit=$(git rev-list -1 --before=$((first + 86400)) HEAD)
fi
commit=$(git rev-parse --verify --quiet "$commit^{commit}") || { echo "run.sh: ${1:-} is no commit" >&2; exit 2; }
work=$(mktemp -d "${TMPDIR:-/tmp}/knarr-upgrade-XXXXXX")
trap 'git worktree remove --force "$work/tree" 2>/dev/null || true; rm -rf "$work"; git worktree prune' EXIT
trap 'exit 143' TERM INT HUP
echo "progress: building $(git show -s --format='%h of %cs: %s' "$commit")"
git worktree add --quiet --detach "$work/tree" "$commit"
if [ -d .cache/runtime/libseccomp ]; then # instead of fetching the package again
  mkdir -p "$work/tree/.cache/runtime"
  cp -a .cache/runtime/libseccomp "$work/tree/.cache/runtime/"
fi
make -C "$work/tree" build >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; exit 1; }
echo "progress: upgrading"
KNARR_UPGRADE_FROM=$work/tree/bin/knarr go test -count=1 -v -run 'UpgradeFromAnotherBuild$' ./test/e2e
