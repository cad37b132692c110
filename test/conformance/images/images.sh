#!/usr/bin/env bash
# images.sh OUT BIN KNARR: writes the archives of the suite's images to OUT, from the folders of
# roots.sh, with `knarr image build`. Images that only differ in their command have one root folder,
# and so share their layer.
set -euo pipefail
out=$(realpath -m "$1") bin=$(realpath "$2") knarr=$(realpath "$3")
cd "$(dirname "$0")"
# The images depend on this folder and on BIN. They are kept while both stay the same.
key=$(cat ./* "$bin"/.version "$bin"/{agnhost,coredns,sample-apiserver,etcd,resource-consumer} | sha256sum | cut -d' ' -f1)
[ "$(cat "$out/.done" 2>/dev/null)" != "$key" ] || exit 0
mkdir -p "$out"
./roots.sh "$out/roots" "$bin"
e2e=registry.k8s.io/e2e-test-images

image() { # image ARCHIVE ROOT FLAGS…
  local archive=$1 root=$2
  shift 2
  "$knarr" image build --output "$out/$archive.tar" "$@" "$out/roots/$root"
}

# agnhost serves one image as a registry with a password would. Its folder has a manifest and a
# blob at DIGEST's path, and a file with the tag's digest.
registry() {
  local layout=$out/roots/.work/pause served=$out/roots/debian/var/registry/pause file digest
  rm -rf "$layout" "$served"
  mkdir -p "$layout" "$served/manifests"
  "$knarr" image build --output "$layout.tar" --tag pause:testing --cmd /pause "$out/roots/pause"
  tar -xf "$layout.tar" -C "$layout"
  for file in "$layout"/blobs/sha256/*; do
    digest=${file##*/}
    for part in manifests blobs; do
      install -D -m 0644 "$file" "$served/$part/sha256/${digest:0:2}/$digest/data"
    done
  done
  grep -oE 'sha256:[0-9a-f]{64}' "$layout/index.json" | head -n 1 >"$served/manifests/testing"
}

registry
image agnhost debian --tag $e2e/agnhost:2.63.0 --tag $e2e/agnhost:2.55 --entrypoint /agnhost --cmd pause
image nginx debian --tag $e2e/nginx:1.15-4 --tag $e2e/nginx:1.27-0 --cmd nginx --cmd -g --cmd 'daemon off;'
image nonewprivs debian --tag $e2e/nonewprivs:1.4 --cmd nnp
image glibc-dns-testing debian --tag $e2e/glibc-dns-testing:2.0.0 --cmd /bin/bash
image ipc-utils debian --tag $e2e/ipc-utils:1.4 --cmd /bin/bash
image perl debian --tag $e2e/perl:5.26 --cmd /bin/bash
image resource-consumer debian --tag $e2e/resource-consumer:1.14 --entrypoint /consumer
image sample-device-plugin debian --tag $e2e/sample-device-plugin:1.7 --entrypoint /sampledeviceplugin --entrypoint -alsologtostderr
image regression-issue-74839 debian --tag $e2e/regression-issue-74839:1.4 --entrypoint /regression-issue-74839
image distroless-iptables debian --tag registry.k8s.io/build-image/distroless-iptables:v0.9.6
image busybox busybox --tag $e2e/busybox:1.37.0-1 --cmd sh
image nonroot busybox --tag $e2e/nonroot:1.5 --cmd sh --user 1234
image nautilus nautilus --tag $e2e/nautilus:1.8 --entrypoint /agnhost --cmd test-webserver
image kitten kitten --tag $e2e/kitten:1.8 --entrypoint /agnhost --cmd test-webserver
image sample-apiserver sample-apiserver --tag $e2e/sample-apiserver:1.29.2 --entrypoint /sample-apiserver
image etcd etcd --tag registry.k8s.io/etcd:3.6.8-0 --cmd etcd
echo "$key" >"$out/.done"
