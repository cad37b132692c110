package controller

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/client"
)

// Split returns a client that writes and reads single objects under a controller's own identity,
// and opens Views under an identity that all controllers share. So all controllers share one View
// of pods. Upstream does the same (shared informers of system:kube-controller-manager), so its
// bootstrap roles fit. Both clients must belong to the same API server process; otherwise the Views
// would not show writes at once.
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
