package scheduler

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

// Extend replaces the plugins that were added at run time. It returns when new decisions use them,
// or when ctx ends. Cycles that have begun end with the former ones. Refused pods are tried again:
// the plugins may decide otherwise.
func (s *Scheduler) Extend(ctx context.Context, added []framework.Addition) error {
	done := make(chan struct{})
	s.post(func(now time.Time) {
		s.added = added
		s.use(s.configured)
		s.reconsider(s.pods.List("", nil), now)
		close(done)
	})
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// RejectWaiting rejects a pod that waits in Permit, in the name of a plugin. It reports whether the
// pod waited.
func (s *Scheduler) RejectWaiting(plugin string, pod types.UID) bool {
	waiting, ok := s.waiting.get(pod)
	if ok {
		waiting.Reject(plugin, "rejected by plugin "+plugin)
	}
	return ok
}
