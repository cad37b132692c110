// Package volume owns the volumes of the pods on a node. It mounts them below the pod's folder,
// keeps projections current, and unmounts them.
//
// Words. A projection is a volume whose content comes from API objects: configMap, secret,
// downwardAPI, projected. A MountPoint is the location of a volume on the host. A sub path is a
// part of a volume. The kernel resolves it beneath the volume to a file descriptor, which is
// bind-mounted.
//
// Layout, the same as upstream's:
//
//	POD/volumes/kubernetes.io~configmap/NAME       also ~secret, ~downward-api, ~projected,
//	                                               ~empty-dir, ~local-volume, ~csi
//	POD/volume-subpaths/VOLUME/CONTAINER/INDEX     bind mounts of sub paths
//
// In: the pod; ConfigMaps and Secrets, each followed by a View of one name while a mounted volume
// shows it; tokens requested for the pod. Out: folders and mounts. All durable state is in the
// pod's folder and the mount table. So Unmount works for pods that a killed process mounted, and
// Mount keeps what exists.
//
// The package does not know the node agent: internal/kubelet/worker declares the interface that
// Manager implements.
package volume
