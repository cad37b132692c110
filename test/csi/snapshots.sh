#!/usr/bin/env bash
# snapshots.sh KUBECTL…: gives the cluster upstream's snapshot controller and its CRDs, with KUBECTL
# as the command for kubectl.
set -euo pipefail
cd "$(dirname "$0")"
crds=$(go list -m -f '{{.Dir}}' github.com/kubernetes-csi/external-snapshotter/client/v8)/config/crd
"$@" apply --server-side -f "$crds/snapshot.storage.k8s.io_volumesnapshotclasses.yaml" -f "$crds/snapshot.storage.k8s.io_volumesnapshots.yaml" \
  -f "$crds/snapshot.storage.k8s.io_volumesnapshotcontents.yaml" -f snapshot-controller.yaml
"$@" -n kube-system rollout status deployment/snapshot-controller --timeout=60s
