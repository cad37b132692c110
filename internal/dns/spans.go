package dns

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/insight/spans"
)

// noteNames keeps a span for each change of the names that this DNS answers by, for traces, until
// ctx ends. Queries read the Views, so a name is answered when the View tells of the change.
// Objects of the start are left out: their changes are old. wait waits for the end.
func (s *Server) noteNames(ctx context.Context) (wait func()) {
	if s.cfg.Spans == nil {
		return func() {}
	}
	begun := make(chan struct{}) // closed when the objects of the start are there
	note := func(namespace, name string, revision int64) {
		select {
		case <-begun:
		default:
			return
		}
		if revision != 0 {
			now := time.Now()
			s.cfg.Spans.Note(spans.Span{Name: spans.Names, Namespace: namespace, Object: name, Revisions: []int64{revision}, Begin: now, End: now})
		}
	}
	synced, done := s.services.Subscribe(ctx, func(e client.TypedEvent[*corev1.Service]) {
		if e.Type != client.Modified || !sameNames(e.Old, e.Object) {
			note(e.Object.Namespace, e.Object.Name, e.Revision)
		}
	})
	slicesSynced, slicesDone := s.slices.Subscribe(ctx, func(e client.TypedEvent[*discoveryv1.EndpointSlice]) {
		service, ok := s.services.Get(e.Object.Namespace, e.Object.Labels[discoveryv1.LabelServiceName])
		if ok && headless(service) {
			note(e.Object.Namespace, e.Object.Name, e.Revision)
		}
	})
	for _, ready := range []<-chan struct{}{synced, slicesSynced} {
		select {
		case <-ready:
		case <-ctx.Done():
		}
	}
	close(begun)
	return func() { <-done; <-slicesDone }
}

// sameNames reports whether two states of a Service have the same answers.
func sameNames(a, b *corev1.Service) bool {
	return a.Spec.Type == b.Spec.Type && a.Spec.ExternalName == b.Spec.ExternalName && headless(a) == headless(b) &&
		a.Spec.PublishNotReadyAddresses == b.Spec.PublishNotReadyAddresses && slices.Equal(clusterIPs(a), clusterIPs(b)) &&
		slices.EqualFunc(a.Spec.Ports, b.Spec.Ports, func(x, y corev1.ServicePort) bool {
			return x.Name == y.Name && x.Protocol == y.Protocol && x.Port == y.Port
		})
}
