package zpages

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/version"
)

// statusz is the content of /statusz.
type statusz struct {
	metav1.TypeMeta  `json:",inline"`
	Metadata         map[string]string `json:"metadata"`
	StartTime        metav1.Time       `json:"startTime"`
	UptimeSeconds    int64             `json:"uptimeSeconds"`
	GoVersion        string            `json:"goVersion"`
	BinaryVersion    string            `json:"binaryVersion"`
	EmulationVersion string            `json:"emulationVersion"`
	Paths            []string          `json:"paths"`
}

// Statusz serves a component's start time, version and paths of further information.
func Statusz(component string, began time.Time, now func() time.Time, paths ...string) http.HandlerFunc {
	return serve("Statusz", func(v string) page {
		s := &statusz{
			TypeMeta: metav1.TypeMeta{Kind: "Statusz", APIVersion: group + "/" + v}, Metadata: map[string]string{"name": component},
			StartTime: metav1.NewTime(began.UTC()), UptimeSeconds: int64(now().Sub(began).Seconds()), GoVersion: runtime.Version(),
			BinaryVersion: strings.TrimPrefix(version.Kubernetes, "v"), EmulationVersion: version.Major + "." + version.Minor, Paths: paths,
		}
		up := s.UptimeSeconds
		return page{s, fmt.Appendf(nil, "\n%s statusz\n%s\nStarted  %s\nUp  %d hr %02d min %02d sec\nGo version  %s\nBinary version  %s\nEmulation version  %s\nPaths  %s\n",
			component, warning, s.StartTime.Format(time.UnixDate), up/3600, up/60%60, up%60, s.GoVersion, s.BinaryVersion, s.EmulationVersion, strings.Join(s.Paths, " "))}
	})
}
