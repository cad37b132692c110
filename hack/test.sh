#!/usr/bin/env bash
# test.sh: everything that must pass, step by step. Every step's output goes to .cache/test/STEP.log; what failed is
# printed last. Steps can be named: test.sh lint unit.
set -uo pipefail
cd "$(dirname "$0")/.."
logs=.cache/test
mkdir -p "$logs"
export GOFLAGS="-buildvcs=false -trimpath"
steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(prerequisites build lint unit e2e conformance)

step() {
  case "$1" in
  prerequisites) hack/prerequisites.sh conformance ;;
  build) make build ;;
  lint) hack/lint.sh ;;
  unit) make unit ;;
  e2e) make e2e ;;
  conformance) test/conformance/run.sh --list test/conformance/ci.txt ;;
  *) echo "test.sh: no step $1"; return 2 ;;
  esac
}

# Lines that say what failed; subtests are indented.
matters='^ *--- FAIL|^(FAIL|panic:|lint:|.*error:|Summarizing|\[FAIL\])|DATA RACE'

failed=() passed=0
for s in "${steps[@]}"; do
  began=$SECONDS
  printf '%-14s' "$s"
  if step "$s" >"$logs/$s.log" 2>&1; then
    passed=$((passed + 1))
    printf 'ok      %4ds\n' $((SECONDS - began))
  else
    failed+=("$s")
    printf 'FAILED  %4ds\n' $((SECONDS - began))
    [ "$s" = prerequisites ] || [ "$s" = build ] && break
  fi
done

for s in "${failed[@]}"; do
  echo "--- $s: the end of $logs/$s.log"
  grep -vE '^(ok|\?) ' "$logs/$s.log" | tail -n 30
  echo "--- $s: the part of $logs/$s.log that matters"
  grep -nE -A25 "$matters" "$logs/$s.log" | grep -vE '^[0-9]+[-:](ok|\?) ' | tail -n 100
done
# Each Go test and each conformance test counts once.
tests=$(cat "$logs"/{unit,e2e}.log 2>/dev/null | grep -cE '^ok\s')
conformance=$(grep -oE '^conformance: [0-9]+ passed' "$logs/conformance.log" 2>/dev/null | grep -oE '[0-9]+' | tail -n 1)
echo "steps: ${passed} of ${#steps[@]}; packages with tests: ${tests}; conformance tests: ${conformance:-0}"
echo "$((passed)) passed, ${#failed[@]} failed"
# What a reader of the last lines alone must know.
for s in "${failed[@]}"; do
  echo "failed: $s"
  grep -hE '^ *--- FAIL|^FAIL\s+\S|^panic:|DATA RACE|^ *\[FAIL\]|^lint:' "$logs/$s.log" | sort -u | head -n 20
done
[ ${#failed[@]} -eq 0 ]
