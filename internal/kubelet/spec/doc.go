// Package spec turns a pod's spec into CRI requests: sandbox and container configurations,
// environment, name resolution, security context and resources.
//
// It reads the cluster only through Sources. It writes only the files below the pod's folder that
// containers mount: the hosts file and the termination message.
package spec
