// Package adopt takes over the control plane of another distribution, and gives it back.
//
// Words. The root is the folder that stands for / of the kubeadm machine. A plan lists what kubeadm
// has configured and what knarr makes of it. Parking is the move of the static pods' manifests out
// of the kubelet's reach.
//
// In: kubeadm's manifests of static pods, its keys, and the data folder of its etcd. They are only
// read, through an os.Root: regular files of bounded size, no link that leads out of the root.
//
// Out: a data folder for `knarr server`, with a file of settings; or, on the way back, a data
// folder for upstream's etcd. Each appears whole, by one rename.
//
// Decision record: docs/adr/0080-kubeadm-clusters-are-adopted.md.
package adopt
