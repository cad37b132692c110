package controlplane

import (
	"context"

	"github.com/knarr-project/knarr/internal/insight/because"
	"github.com/knarr-project/knarr/internal/insight/causes"
)

// openCauses opens the causal log. A log that cannot be opened is no reason to have no cluster: the
// server runs without one.
func (s *Server) openCauses() *causes.Log {
	size := s.cfg.APIServer.Causes.Bytes()
	if size == 0 {
		return nil
	}
	log := s.log.With("component", "apiserver")
	opened, err := causes.Open(causes.Options{
		Dir: s.cfg.Path("causes"), MaxBytes: size, MaxAge: s.cfg.APIServer.Causes.Age.Duration, Logger: log,
	})
	if err != nil {
		log.Warn("the causes of writes are not recorded", "err", err)
		return nil
	}
	return opened
}

// tracked returns a context in which components collect the causes of their writes, if the API
// server records them.
func (s *Server) tracked(ctx context.Context) context.Context {
	if s.cfg.APIServer.Causes.Bytes() == 0 {
		return ctx
	}
	return because.Track(ctx)
}
