package architecture

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/architecture"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// define creates the definitions that are missing, and updates those of other versions.
func define(ctx context.Context, c client.Interface) error {
	definitions, err := architecture.Stored()
	if err != nil {
		return err
	}
	for _, want := range definitions {
		if err := controller.EnsureDefinition(ctx, c, want); err != nil {
			return fmt.Errorf("definition %s: %w", want.Name, err)
		}
	}
	return nil
}

// open returns a View of a kind of the package, once the kind is served. It returns nil when ctx
// ends.
func open(ctx context.Context, c client.Interface, res schema.GroupVersionResource) (client.View, error) {
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		view, err := c.View(ctx, res, client.Scope{})
		switch {
		case err == nil:
			return view, nil
		case ctx.Err() != nil:
			return nil, nil
		case !apierrors.IsNotFound(err) && !apierrors.IsServiceUnavailable(err):
			return nil, fmt.Errorf("open %s: %w", res.Resource, err)
		}
		select {
		case <-ctx.Done():
			return nil, nil
		case <-time.After(wait):
		}
	}
}
