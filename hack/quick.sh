#!/usr/bin/env bash
# quick.sh: the inner loop. Checks the differences from main, committed or not: format, shell
# syntax, vet, the tests of changed packages and of their direct importers, the rules of test/arch.
# hack/steps runs it and shows lines that begin with "note: ": `make quick`.
set -uo pipefail
cd "$(dirname "$0")/.."
export GOFLAGS="-buildvcs=false -trimpath" CGO_ENABLED=0
module=$(go list -m)
enough=90 # seconds after which no more packages are started
bad=0
say() { echo "lint: $*"; bad=1; }
note() { echo "note: $*"; }

base=$(git merge-base HEAD main 2>/dev/null || git merge-base HEAD origin/main 2>/dev/null || git rev-parse HEAD)
mapfile -t files < <({ git diff --name-only "$base"; git ls-files --others --exclude-standard; } | sort -u)
note "${#files[@]} files differ from $(git rev-parse --short "$base") on main"

echo "progress: format and shell syntax"
for file in "${files[@]}"; do
  [ -e "$file" ] || continue
  case $file in
  *.go) [ -z "$(gofmt -l "$file")" ] || say "run gofmt -w $file" ;;
  *.sh | .ci/run) bash -n "$file" || say "$file has a syntax error" ;;
  esac
done

# The package of a file, also of one in testdata, is the nearest folder with Go files. Folders with
# a go.mod are other modules.
echo "progress: finding packages"
declare -A changed=() other=()
for file in "${files[@]}"; do
  nested=$(dirname "$file")
  while [ "$nested" != . ] && [ ! -e "$nested/go.mod" ]; do nested=$(dirname "$nested"); done
  if [ "$nested" != . ]; then
    other[$nested]=1
    continue
  fi
  dir=$(dirname "$file")
  while [ "$dir" != . ] && ! compgen -G "$dir/*.go" >/dev/null; do dir=$(dirname "$dir"); done
  [ "$dir" = . ] || changed[$module/$dir]=1
done
declare -A importers=()
while read -r package imports; do
  [ -z "${changed[$package]:-}" ] || continue
  for import in $imports; do
    [ -z "${changed[$import]:-}" ] || importers[$package]=1
  done
done < <(go list -e -f '{{.ImportPath}} {{join .Imports " "}} {{join .TestImports " "}} {{join .XTestImports " "}}' ./...)

# slow PACKAGE: the tests need a cluster, root and minutes.
slow() { [[ $1 = "$module"/test/e2e* || $1 = "$module"/test/chaos* ]]; }
test=() vet=() left=()
for package in "${!changed[@]}"; do
  [ -n "$(go list -e -f '{{len .GoFiles}}{{len .TestGoFiles}}{{len .XTestGoFiles}}' "$package" 2>/dev/null)" ] || continue # removed
  vet+=("$package")
  if slow "$package"; then left+=("$package"); elif [ "$package" != "$module/test/arch" ]; then test+=("$package"); fi
done
echo "progress: packages $((${#test[@]} + 1))"
if [ ${#vet[@]} -gt 0 ]; then
  echo "progress: go vet of ${#vet[@]} packages"
  go vet "${vet[@]}" || say "go vet found something"
fi
echo "progress: the rules of test/arch"
go test -vet=off -count=1 -json ./test/arch || bad=1
if [ ${#test[@]} -gt 0 ]; then
  echo "progress: tests of changed packages"
  go test -vet=off -timeout 10m -json -p 3 -parallel 4 "${test[@]}" || bad=1
fi
batch=()
batch() {
  [ ${#batch[@]} -gt 0 ] || return 0
  if [ "$SECONDS" -ge "$enough" ]; then
    left+=("${batch[@]}")
  else
    echo "progress: packages ${#batch[@]}"
    go test -vet=off -timeout 10m -json -p 3 -parallel 4 "${batch[@]}" || bad=1
  fi
  batch=()
}
# seconds PACKAGE: prints the duration of its tests in the last run, if they were among the slowest.
seconds() { cat .cache/test/{unit,quick}.slow 2>/dev/null | awk -v package="${1#"$module"/}" '$3 == package && $1 > most {most = $1} END {print most + 0}'; }
echo "progress: tests of packages that import them"
for package in $(for package in "${!importers[@]}"; do echo "$(seconds "$package") $package"; done | sort -n | cut -d' ' -f2); do
  if slow "$package"; then left+=("$package"); else batch+=("$package"); fi
  [ ${#batch[@]} -lt 4 ] || batch
done
batch

[ ${#left[@]} -eq 0 ] || note "left out: the tests of ${left[*]#"$module"/}"
[ ${#other[@]} -eq 0 ] || note "left out: the modules ${!other[*]}"
note "left out: the race detector, staticcheck, packages that import the changed ones through others, e2e, conformance: make test"
exit $bad
