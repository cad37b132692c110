package gc

import (
	"context"
	"time"

	"github.com/knarr-project/knarr/internal/controller"
)

// Impatient is the garbage collector, but that it begins with what can be listed at once, and waits for a page of a list, and for all of them, for as long as it
// is told.
func Impatient(limit, total time.Duration) controller.Starter {
	return controller.Starter{Name: Controller.Name, Account: Controller.Account, Run: func(ctx context.Context, env controller.Env) error {
		return (&collector{env: env, patience: time.Millisecond, limit: limit, total: total}).run(ctx)
	}}
}
