// Package version says which knarr this is, and which Kubernetes it speaks.
package version

// Knarr is set when the binary is built (-ldflags -X).
var Knarr = "v0.0.0-dev"

// Kubernetes is the version of the API that is served: what /version and a node's kubeletVersion say.
const (
	Kubernetes = "v1.36.3"
	Major      = "1"
	Minor      = "36"
)
