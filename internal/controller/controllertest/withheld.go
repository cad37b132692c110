package controllertest

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/client"
)

// withheld is a client whose Views of one kind do not open.
type withheld struct {
	client.Interface
	kind     schema.GroupVersionResource
	released chan struct{}
}

// View implements client.Interface.
func (w withheld) View(ctx context.Context, res schema.GroupVersionResource, scope client.Scope) (client.View, error) {
	if res == w.kind {
		select {
		case <-w.released:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return w.Interface.View(ctx, res, scope)
}

// Withhold blocks the Views of a kind until release is called, like those of a kind that cannot be
// listed. A plain List works.
func (c *Cluster) Withhold(kind schema.GroupVersionResource) (release func()) {
	released := make(chan struct{})
	c.Client = withheld{c.Client, kind, released}
	return func() { close(released) }
}
