package dns

import (
	"context"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/insight/spans"
	"github.com/knarr-project/knarr/internal/network/nettest"
)

func TestSpansAreOfChangedNames(t *testing.T) {
	objects, ring := cluster(), &spans.Ring{}
	s, err := New(Config{NodeName: "here", Client: objects, Spans: ring})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	s.services, err = client.Open[*corev1.Service](ctx, objects, client.Scope{})
	must(t, err)
	s.slices, err = client.Open[*discoveryv1.EndpointSlice](ctx, objects, client.Scope{})
	must(t, err)
	wait := s.noteNames(ctx)
	defer func() { cancel(); wait() }()

	slice := func(name, service string) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}}}
	}
	first := objects.Revision()
	objects.Put(service("default", "web", "10.43.0.20", nil))
	objects.Put(service("default", "web", "10.43.0.20", func(s *corev1.Service) { s.Labels = map[string]string{"only": "labels"} }))
	objects.Put(service("default", "web", "10.43.0.20", func(s *corev1.Service) { s.Spec.Ports[0].Name = "new" }))
	objects.Remove(service("default", "web", "10.43.0.20", nil))
	objects.Put(slice("dual-1", "dual"))
	objects.Put(slice("db-2", "db"))

	want := []int64{first + 1, first + 3, first + 4, first + 6}
	var got []int64
	nettest.Eventually(t, "the changes of names are noted", func() bool {
		got = nil
		found, _ := ring.Select(nil, []string{"default/web", "default/dual-1", "default/db-2", "default/kubernetes", "default/db-1"})
		for _, span := range found {
			if span.Name == spans.Names {
				got = append(got, span.Revisions...)
			}
		}
		slices.Sort(got)
		return len(got) >= len(want)
	})
	if !slices.Equal(got, want) {
		t.Errorf("noted %v, not %v", got, want)
	}
}
