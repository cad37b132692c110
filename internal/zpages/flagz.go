package zpages

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// flagz is the content of /flagz: each setting by its flag's name.
type flagz struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        map[string]string `json:"metadata"`
	Flags           map[string]string `json:"flags"`
}

// Flagz serves a component's settings. settings returns the effective values from all sources,
// without secrets.
func Flagz(component string, settings func() map[string]string) http.HandlerFunc {
	return serve("Flagz", func(version string) page {
		flags := settings()
		var text bytes.Buffer
		fmt.Fprintf(&text, "\n%s flagz\n%s", component, warning)
		for _, name := range slices.Sorted(maps.Keys(flags)) {
			fmt.Fprintf(&text, "%s=%s\n", name, flags[name])
		}
		return page{&flagz{
			TypeMeta: metav1.TypeMeta{Kind: "Flagz", APIVersion: group + "/" + version}, Metadata: map[string]string{"name": component}, Flags: flags,
		}, text.Bytes()}
	})
}
