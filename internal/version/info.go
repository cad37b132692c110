package version

import (
	"k8s.io/apimachinery/pkg/version"
)

// Info is what /version says: the API that is spoken, and the build that speaks it.
func Info() version.Info {
	b := Current()
	return version.Info{
		Major: Major, Minor: Minor, EmulationMajor: Major, EmulationMinor: Minor, MinCompatibilityMajor: "1", MinCompatibilityMinor: "35",
		GitVersion: Kubernetes + "+knarr", GitCommit: b.Commit, GitTreeState: b.Tree, BuildDate: b.Date, Compiler: "gc",
		GoVersion: b.Go, Platform: b.Platform,
	}
}
