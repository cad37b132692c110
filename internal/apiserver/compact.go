package apiserver

import (
	"context"
	"time"
)

// compactor forgets, at every tick, the revisions older than the tick before. Continue tokens and watches from before
// that expire then.
func (s *Server) compactor(ctx context.Context) {
	if s.cfg.CompactEvery < 0 {
		return
	}
	ticker := time.NewTicker(s.cfg.CompactEvery)
	defer ticker.Stop()
	var last int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if last > 0 {
			if err := s.store.Compact(ctx, last); err != nil && ctx.Err() == nil {
				s.log.Error("compact the store", "revision", last, "err", err)
			}
		}
		revision, err := s.store.Revision(ctx)
		if err != nil {
			if ctx.Err() == nil {
				s.log.Error("read the store's revision", "err", err)
			}
			continue
		}
		last = revision
	}
}
