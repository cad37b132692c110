package controlplane

import (
	"context"
	"sync"
	"time"

	"github.com/knarr-project/knarr/internal/auth/rbac"
	"github.com/knarr-project/knarr/internal/config"
)

// bootstrapPolicy stores the bootstrap policy and retries until it succeeds. Until then the policy
// applies as if it were stored. A webhook that refuses everything does not end the process, because
// without a server it could not be removed.
func (s *Server) bootstrapPolicy(ctx context.Context, policy *rbac.Authorizer) {
	tried := sync.OnceFunc(func() { close(s.policyTried) })
	if !policy.Stored() {
		tried() // an empty store: the whole policy of this version applies until it is stored
	}
	for pause := time.Second; ; pause = min(2*pause, time.Minute) {
		err := policy.Bootstrap(ctx, s.own(), config.EnabledGates(s.cfg.APIServer.FeatureGates)...)
		tried()
		if err == nil {
			close(s.policyStored)
			return
		}
		if ctx.Err() != nil {
			return
		}
		s.log.Warn("cannot store all of the bootstrap policy; trying again", "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// policyLimit bounds the wait for the bootstrap policy, for a webhook that answers none of its
// writes.
const policyLimit = 30 * time.Second

// AwaitPolicy is the part of a process's start that waits for the roles of this version, before the
// parts of its node.
func (s *Server) AwaitPolicy(ctx context.Context) (func() error, error) {
	s.awaitPolicy(ctx)
	return func() error { <-ctx.Done(); return nil }, ctx.Err()
}

// awaitPolicy waits until the roles of this version apply. An earlier version may have stored the
// roles, and a component that starts before would be refused what its old role does not have. If
// the policy cannot be stored, the components start all the same: a webhook's own pods may need
// them.
func (s *Server) awaitPolicy(ctx context.Context) {
	select {
	case <-s.policyTried:
	case <-time.After(policyLimit):
	case <-ctx.Done():
	}
}
