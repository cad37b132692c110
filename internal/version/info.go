package version

import (
	"runtime"

	"k8s.io/apimachinery/pkg/version"
)

// Info is what /version says: the API that is spoken.
var Info = version.Info{
	Major: Major, Minor: Minor, EmulationMajor: Major, EmulationMinor: Minor, MinCompatibilityMajor: "1", MinCompatibilityMinor: "35",
	GitVersion: Kubernetes + "+knarr", GitTreeState: "clean", BuildDate: "1970-01-01T00:00:00Z", Compiler: "gc",
	GoVersion: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
}
