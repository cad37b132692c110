package kubelet

import (
	"slices"
	"testing"

	"github.com/knarr-project/knarr/internal/trace"
	"github.com/knarr-project/knarr/internal/trace/tracetest"
)

func TestTheActionsOnAPodAreTraced(t *testing.T) {
	collector := tracetest.Listen(t)
	config, err := trace.Load(collector.Config(t, 1_000_000))
	if err != nil {
		t.Fatal(err)
	}
	tracer, err := trace.Open(t.Context(), config, trace.Options{Service: "kubelet", Instance: "node"})
	if err != nil {
		t.Fatal(err)
	}
	b := newBench(t, func(b *bench) { b.cfg.Tracer = tracer })
	p := b.create(pod("one"))
	b.await("one", "ready", ready)
	b.delete("one")
	b.gone("one")
	b.stop()
	if err := tracer.Close(); err != nil { // it sends the remaining spans
		t.Fatal(err)
	}
	spans := collector.Spans()
	for _, name := range []string{"pod sandbox", "pod container", "pod kill", "pod release"} {
		if !slices.ContainsFunc(spans, func(s tracetest.Span) bool {
			return s.Name == name && s.Service == "kubelet" && s.Attribute("k8s.pod.name") == "one" && s.Attribute("k8s.pod.uid") == string(p.UID)
		}) {
			t.Errorf("no span %q of the pod", name)
		}
	}
}
