package controller

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/client"
)

// Split makes a client that writes (and reads single objects) under a controller's own identity and opens Views under one
// that all controllers share: so there is one View of pods for all of them. It is how upstream does it too (shared
// informers of system:kube-controller-manager), so upstream's bootstrap roles fit. Both must be of one API server process,
// or else the Views would not show the writes at once.
func Split(views, own client.Interface) client.Interface {
	return split{Interface: own, views: views}
}

type split struct {
	client.Interface
	views client.Interface
}

func (s split) View(ctx context.Context, res schema.GroupVersionResource, scope client.Scope) (client.View, error) {
	return s.views.View(ctx, res, scope)
}

func (s split) Discovery(ctx context.Context) ([]*metav1.APIResourceList, error) {
	return s.views.Discovery(ctx)
}
