// Package volume owns the volumes of the pods on a node: it makes what a container's volumeMounts name appear in a
// folder of the pod, keeps projections current, and takes them away again.
//
// Words. A projection is a volume made of API objects: configMap, secret, downwardAPI, projected. A MountPoint is where a
// volume lies on the host. A sub path is a part of a volume, bind-mounted by a descriptor that the kernel resolved beneath it.
//
// Layout, as upstream's node agent has it:
//
//	POD/volumes/kubernetes.io~configmap/NAME       and ~secret, ~downward-api, ~projected, ~empty-dir, ~local-volume, ~csi
//	POD/volume-subpaths/VOLUME/CONTAINER/INDEX     bind mounts of sub paths
//
// Data in: the pod; ConfigMaps and Secrets, each followed by a View of its one name while a mounted volume shows it; tokens that
// are requested for the pod. Nothing is remembered outside of the pod's folder and the mount table, so Unmount works for
// pods that a killed process mounted, and Mount keeps what it finds.
//
// The package does not know the node agent: internal/kubelet/worker declares the interface that Manager implements.
package volume
