#!/usr/bin/env bash
# kube.sh PACKAGE [flags of a test binary without "test.", such as -run Patch]: runs one package of
# upstream's other integration tests (below k8s.io/kubernetes/test/integration) against knarr.
# PACKAGE all means those in kube/packages.txt, one after the other. Their sources are unchanged;
# only the files that start a server are replaced. It prints the failures, the number of passed
# tests, and why others skip themselves; .cache/integration/kube/PACKAGE.log has the whole output.
# UPSTREAM and KNARR are those of run.sh.
. "$(dirname "$0")/common.sh"
asked=${1:?which package of k8s.io/kubernetes/test/integration? see the top of kube.sh}
shift
mkdir -p "$cache/kube"

module=k8s.io/kubernetes
mod=$cache/kube/go.mod
rm -f "$mod"
show $module "$cache/kubernetes"
show k8s.io/apiextensions-apiserver "$cache/extensions"
sed 's/^func StartRealAPIServerOrDie/func startUpstreams/' "$cache/kubernetes/test/integration/etcd/server.go" >"$cache/kube/etcd_server.go.txt"
cat >"$cache/kube/overlay.json" <<END
{"Replace": {
  "$cache/kubernetes/cmd/kube-apiserver/app/testing/testserver.go": "$PWD/kube/testing/testserver.go",
  "$cache/extensions/pkg/cmd/server/testing/testserver.go": "$PWD/crd/testserver.go",
  "$cache/kubernetes/test/integration/framework/test_server.go": "$PWD/kube/framework/test_server.go",
  "$cache/kubernetes/test/integration/etcd/server.go": "$cache/kube/etcd_server.go.txt",
  "$cache/kubernetes/test/integration/etcd/knarr.go": "$PWD/kube/etcd/start.go.txt"
}}
END

# judge PACKAGE [FLAGS]: builds a package's tests, runs them and prints the results.
judge() {
  local package=$1 name=${1//\//-} status=0 binary log skip
  shift
  binary=$cache/kube/$name.test log=$cache/kube/$name.log
  rm -f "$binary"
  echo "progress: compiling $package"
  session go test -c -modfile "$mod" -mod=mod -overlay "$cache/kube/overlay.json" -vet=off -o "$binary" "$module/test/integration/$package" || return 1
  [ -x "$binary" ] || { echo "$package has no tests"; return 1; }
  skip=$(cannot kube/cannot.txt "$package")
  telling "$package" "$log" '^ *--- (PASS|FAIL|SKIP)' session env -C "$cache/kubernetes/test/integration/$package" PATH="$(dirname "$etcd"):$PATH" "$binary" -test.v -test.timeout 60m \
    ${skip:+-test.skip "$skip"} "${@/#-/-test.}" || status=$?
  rm -f "$binary" # each contains a large part of Kubernetes
  grep -aE '^ *--- FAIL|^panic:' "$log" | cut -c1-200 || true
  grep -aoE 'knarr (does not have|is another process).*' "$log" | sort | uniq -c | cut -c1-200 || true
  echo "$package: $(count PASS) passed, $(count FAIL) failed, $(count SKIP) skipped; $(grep -c "^$package Test" kube/cannot.txt || true) cannot"
  [ "$status" = 0 ] && [ "$(count PASS)" -gt 0 ]
}

if [ "$asked" != all ]; then
  judge "$asked" "$@"
  exit
fi
failed=0
while read -r package; do
  judge "$package" "$@" || failed=1
done < <(grep -v '^#' kube/packages.txt)
exit "$failed"
