#!/usr/bin/env bash
# images.sh OUT BIN KNARR: writes the archives of the images that upstream's manifests of CSI
# drivers name, to OUT. BIN holds the programs; see build.sh. OUT/roots/busybox is the root folder
# of busybox, if it is there; see ../conformance/images.
set -euo pipefail
out=$(realpath -m "$1") bin=$(realpath "$2") knarr=$(realpath "$3")
programs=(csitest csi-attacher csi-snapshotter snapshot-controller)
key=$( (cat "$0"; cd "$bin" && cat "${programs[@]}") | sha256sum | cut -d' ' -f1)
[ "$(cat "$out/.csi" 2>/dev/null)" != "$key" ] || exit 0
root=$out/roots/csi
rm -rf "$root" && mkdir -p "$root/tmp"
chmod 1777 "$root/tmp"
for program in "${programs[@]}"; do cp "$bin/$program" "$root/"; done

image() { # image NAME:VERSION ENTRYPOINT…
  local flags=()
  for word in "${@:2}"; do flags+=(--entrypoint "$word"); done
  "$knarr" image build --output "$out/csi-${1%:*}.tar" --tag "registry.k8s.io/sig-storage/$1" "${flags[@]}" "$root"
}

if [ -d "$out/roots/busybox" ]; then
  "$knarr" image build --output "$out/csi-busybox.tar" --tag registry.k8s.io/e2e-test-images/busybox:1.36.1-1 --cmd sh "$out/roots/busybox"
fi
image hostpathplugin:v1.17.1 /csitest driver
image csi-node-driver-registrar:v2.16.0 /csitest registrar
image csi-provisioner:v6.1.1 /csitest provisioner
image csi-resizer:v2.1.0 /csitest resizer
image livenessprobe:v2.18.0 /csitest livenessprobe
image csi-attacher:v4.11.0 /csi-attacher
image csi-snapshotter:v8.5.0 /csi-snapshotter
image snapshot-controller:v8.5.0 /snapshot-controller
echo "$key" >"$out/.csi"
