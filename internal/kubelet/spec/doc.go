// Package spec turns a pod's spec into what the container runtime is asked for: sandbox and container configurations,
// environment, name resolution, security context and resources. It reads the cluster only through the Sources given to it and
// writes nothing but the files below the pod's folder that containers mount (hosts, termination log).
package spec
