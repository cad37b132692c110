package architecture_test

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/client"
)

// counting is a client that knows which Views were opened.
type counting struct {
	client.Interface
	mu   sync.Mutex
	seen map[string]bool
}

func (c *counting) View(ctx context.Context, res schema.GroupVersionResource, scope client.Scope) (client.View, error) {
	view, err := c.Interface.View(ctx, res, scope)
	if err == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.seen[res.Resource] = true
	}
	return view, err
}
