package run

import (
	"context"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/controlplane"
	"github.com/knarr-project/knarr/internal/process"
	"github.com/knarr-project/knarr/internal/servers"
)

// firstObjects waits for the first objects. It then keeps the list of the cluster's servers on
// disk, by which the commands on this machine find another server.
func (p Params) firstObjects(s *controlplane.Server) process.Component {
	return process.Component{Name: "first objects", Start: func(ctx context.Context) (func() error, error) {
		if _, err := s.AwaitFirstObjects(ctx); err != nil {
			return nil, err
		}
		log := p.Log.With("component", "servers")
		list := servers.NewPool(servers.Options{Path: p.Config.Path(servers.File), Log: log})
		return process.Background(func(ctx context.Context) error {
			if err := servers.Follow(ctx, s.Client(auth.Component(auth.UserProxy)), list, log); err != nil && ctx.Err() == nil {
				log.Warn("the list of servers is not kept", "error", err)
			}
			<-ctx.Done()
			return nil
		})(ctx)
	}}
}
