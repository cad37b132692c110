package gc

import (
	"context"
	"time"

	"github.com/knarr-project/knarr/internal/controller"
)

// Impatient is the garbage collector with short limits. It starts with the kinds that can be listed
// at once. limit is the time for one page of a list, total the time for all pages.
func Impatient(limit, total time.Duration) controller.Starter {
	return controller.Starter{Name: Controller.Name, Account: Controller.Account, Run: func(ctx context.Context, env controller.Env) error {
		return (&collector{env: env, patience: time.Millisecond, limit: limit, total: total}).run(ctx)
	}}
}
