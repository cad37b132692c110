package controlplane

import (
	"context"

	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/insight/because"
	"github.com/knarr-project/knarr/internal/insight/causes"
	"github.com/knarr-project/knarr/internal/insight/history"
	"github.com/knarr-project/knarr/internal/insight/segments"
)

// openCauses opens the causal log.
func (s *Server) openCauses() *causes.Log {
	return openLog(s, &s.cfg.APIServer.Causes, "causes", causes.Open)
}

// openHistory opens the history of objects.
func (s *Server) openHistory() *history.Log {
	return openLog(s, &s.cfg.APIServer.History, "history", history.Open)
}

// openLog opens a log of insight in the data folder. A log that cannot be opened is no reason to
// have no cluster: the server runs without it.
func openLog[L any](s *Server, cfg *config.InsightLog, dir string, open func(segments.Options) (*L, error)) *L {
	if cfg.Bytes() == 0 {
		return nil
	}
	log := s.log.With("component", "apiserver")
	opened, err := open(segments.Options{Dir: s.cfg.Path(dir), MaxBytes: cfg.Bytes(), MaxAge: cfg.Age.Duration, Clock: s.clock.Now, Logger: log})
	if err != nil {
		log.Warn("a log of insight is not recorded", "err", err)
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
