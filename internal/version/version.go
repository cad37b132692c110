// Package version says which knarr this is, and which Kubernetes it speaks.
package version

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
)

// Kubernetes is the version of the API that is served: what /version and a node's kubeletVersion
// say.
const (
	Kubernetes = "v1.36.3"
	Major      = "1"
	Minor      = "36"
)

// The Makefile sets these (-ldflags -X). A plain `go build` leaves them empty: then the Go
// command's own record of the checkout counts.
var (
	release string // such as v1.36.3+knarr0
	commit  string // full hash
	date    string // time of the commit, RFC 3339 in UTC
	tree    string // clean or dirty
)

// Build identifies a binary.
type Build struct {
	// Knarr is the release, such as v1.36.3+knarr0; v1.36.3+knarr-devel for a build without one.
	Knarr string `json:"knarr"`
	// Kubernetes is the version of the API.
	Kubernetes string `json:"kubernetes"`
	// Commit is the full hash of the source; "unknown" for a source without its history.
	Commit string `json:"commit"`
	// Date is the time of the commit, RFC 3339 in UTC; "unknown" as Commit. A build has no time of
	// its own: two builds of one commit are equal.
	Date string `json:"date"`
	// Tree is clean, dirty (the source had changes that were not committed) or unknown.
	Tree string `json:"tree"`
	// Go is the version of the Go toolchain.
	Go string `json:"go"`
	// Platform is the operating system and architecture, such as linux/amd64.
	Platform string `json:"platform"`
}

// Current is this binary's build.
var Current = sync.OnceValue(func() Build {
	info, _ := debug.ReadBuildInfo()
	return build(info)
})

func build(info *debug.BuildInfo) Build {
	b := Build{Kubernetes: Kubernetes, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	recorded := map[string]string{}
	if info != nil {
		for _, s := range info.Settings {
			recorded[s.Key] = s.Value
		}
		if v := info.Main.Version; strings.HasPrefix(v, "v") {
			recorded["version"] = v
		}
	}
	recorded["tree"] = map[string]string{"false": "clean", "true": "dirty"}[recorded["vcs.modified"]]
	const unknown = "unknown"
	b.Knarr = cmp.Or(release, recorded["version"], Kubernetes+"+knarr-devel")
	b.Commit = cmp.Or(commit, recorded["vcs.revision"], unknown)
	b.Date = cmp.Or(date, recorded["vcs.time"], unknown)
	b.Tree = cmp.Or(tree, recorded["tree"], unknown)
	return b
}
