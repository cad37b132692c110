// Package volume owns the volumes of the pods on a node: it makes what a container's volumeMounts name appear in a
// folder of the pod, keeps projections current, and takes them away again.
package volume
