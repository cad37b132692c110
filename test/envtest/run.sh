#!/usr/bin/env bash
# run.sh [--tests N]: builds upstream's kube-apiserver and etcd if necessary, and compares
# controller-runtime's envtest on them with knarrtest/envtest. It prints the table, which is also in
# .cache/envtest/table.md. Needs no root.
#
#   COMPARE_BIN=DIR  uses existing kube-apiserver and etcd instead of building them
set -euo pipefail
cd "$(dirname "$0")/../.."
. test/session.sh
top=$PWD
cache=$top/.cache/envtest
bin=$top/.cache/compare/bin
mkdir -p "$cache" "$bin"
export GOFLAGS="-buildvcs=false -trimpath" CGO_ENABLED=0

version=$(go list -C test/upstream -m -f '{{.Version}}' k8s.io/kubernetes)
programs=$cache/programs
mkdir -p "$programs"
for name in kube-apiserver etcd; do
  from=${COMPARE_BIN:-$bin}/$name
  if [ ! -x "$from" ]; then
    from=$bin/$name package=k8s.io/kubernetes/cmd/kube-apiserver
    [ $name = kube-apiserver ] || package=go.etcd.io/etcd/server/v3
    echo "run.sh: building $name" >&2
    go build -C test/upstream -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version" -o "$from" $package
  fi
  ln -sfn "$(realpath "$from")" "$programs/$name"
done
ln -sfn "$(command -v true)" "$programs/kubectl" # envtest looks for it; no test runs it
go build -C test/envtest -o "$cache/measure" .
scratch=$(mktemp -d "${TMPDIR:-/tmp}/kenv-XXXXXX")
export TMPDIR=$scratch KUBEBUILDER_ASSETS=$programs
session "$cache/measure" -out "$cache/table.md" "$@"
