package watch

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// Upstream encodes bookmarks of its internal types, whose counts are no pointers.
func TestBookmarksHaveUpstreamsZeroCounts(t *testing.T) {
	s := newTestServer(t)
	for resource, has := range map[string]string{
		"deployments": `"spec":{"replicas":0,`, "replicasets": `"spec":{"replicas":0,`, "statefulsets": `"spec":{"replicas":0,`,
		"daemonsets": `"annotations":{"deprecated.daemonset.template.generation":"0"}`, "controllerrevisions": `"metadata":{"resourceVersion":"7"}`,
	} {
		e, ok := s.engine.Kinds.Find(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: resource})
		if !ok {
			t.Fatal(resource)
		}
		w := &Watcher{op: s.engine.InternalOperation(e, "default", "")}
		body, err := e.EncodeObject(w.bookmarkObject(7, false), wire.JSONFormat)
		if err != nil || !strings.Contains(string(body), has) {
			t.Errorf("%s: %s %v", resource, body, err)
		}
	}
}
