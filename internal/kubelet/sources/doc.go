// Package sources reads pods from outside the API: a folder (or file) of manifests, and a manifest at a URL. Such static pods get
// names, UIDs and annotations as upstream gives them.
package sources
