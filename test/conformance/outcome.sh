#!/usr/bin/env bash
# outcome.sh NAME JUNIT EXPECTED: compares the failed tests of a ginkgo suite with a list of names,
# one a line ('#' begins a comment). It fails if a test fails that is not in the list, or passes
# although it is.
set -euo pipefail
name=$1 junit=$2 list=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
names() { # names STATUS: the tests that ended so
  { grep -oE '<testcase name="[^"]*" classname="[^"]*" status="'"$1"'"' "$junit" || true; } | sed -E 's/^<testcase name="([^"]*)".*/\1/' | { grep '^\[It\]' || true; } |
    sed -E 's/^\[It\] //; s/&#34;/"/g; s/&#39;/'"'"'/g; s/&lt;/</g; s/&gt;/>/g; s/&amp;/\&/g' | sort
}
names passed >"$work/passed"
names '(failed|panicked|timedout|aborted|interrupted)' >"$work/failed"
{ grep -vE '^\s*(#|$)' "$list" || true; } | sort >"$work/expected"
comm -13 "$work/expected" "$work/failed" >"$work/unexpected"
comm -12 "$work/expected" "$work/passed" >"$work/unneeded"
sed 's/^/failed: /' "$work/unexpected"
sed "s|^|passed, but stands in ${list##*/}: |" "$work/unneeded"
bad=$(cat "$work/unexpected" "$work/unneeded" | wc -l)
echo "$name: $(wc -l <"$work/passed") passed, $(comm -12 "$work/expected" "$work/failed" | wc -l) failed as expected, $bad unexpected"
[ "$bad" = 0 ] && [ -s "$work/passed" ]
