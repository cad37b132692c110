package servers

import (
	"context"
	"log/slog"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/knarr-project/knarr/internal/client"
)

const (
	service  = "kubernetes" // in namespace default
	portName = "https"
)

// Follow teaches the pool the endpoints of Service default/kubernetes until ctx ends. It shares the
// View of all EndpointSlices with the service proxy.
func Follow(ctx context.Context, c client.Interface, pool *Pool, log *slog.Logger) error {
	view, err := client.Open[*discoveryv1.EndpointSlice](ctx, c, client.Scope{})
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	selector := labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: service})
	learn := func() {
		if err := pool.Learn(client.ReadyAddresses(view.List(metav1.NamespaceDefault, selector), portName)); err != nil {
			log.Warn("cannot store the list of servers", "error", err)
		}
	}
	synced, done := view.Subscribe(ctx, func(e client.TypedEvent[*discoveryv1.EndpointSlice]) {
		if e.Object.Namespace == metav1.NamespaceDefault && e.Object.Labels[discoveryv1.LabelServiceName] == service {
			learn()
		}
	})
	select {
	case <-synced:
		learn()
	case <-done:
	}
	<-done
	return nil
}
