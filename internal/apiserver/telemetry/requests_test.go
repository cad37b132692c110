package telemetry

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

func TestUnknownPathsDoNotGrowTheMetrics(t *testing.T) {
	m := NewMetrics()
	for i := range maxSeries + 10 {
		m.seriesOf(&wire.RequestInfo{IsResource: true, Verb: "get", GVR: schema.GroupVersionResource{Version: "v1", Resource: fmt.Sprint(i)}})
	}
	if m.labelSets != maxSeries || m.seriesOf(&wire.RequestInfo{IsResource: true, Verb: "get", GVR: schema.GroupVersionResource{Version: "v1", Resource: "x"}}) != m.others {
		t.Errorf("%d shapes", m.labelSets)
	}
}
