#!/usr/bin/env bash
# test.sh [STEP...]: runs all steps that must pass, or the named ones, several at a time, and shows
# their progress. hack/steps is the program behind it: its doc.go defines the words, its plan.go the
# steps. Every step's output goes to .cache/test/STEP.log.
set -euo pipefail
cd "$(dirname "$0")/.."
go=${GO:-go}
command -v "$go" >/dev/null || { echo "test.sh: Go is missing: install Go 1.26 or newer and put it on the PATH" >&2; exit 1; }
export GOFLAGS="-buildvcs=false -trimpath" CGO_ENABLED=0
mkdir -p .cache/bin
[ -e .cache/bin/steps ] || echo "compiling the program that runs the steps: half a minute with an empty cache"
"$go" build -o .cache/bin/steps ./hack/steps
exec .cache/bin/steps "$@"
