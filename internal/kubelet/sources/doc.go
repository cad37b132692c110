// Package sources reads static pods from a folder or file of manifests and from a URL. It gives
// them names, UIDs and annotations as upstream does.
package sources
