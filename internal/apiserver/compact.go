package apiserver

import (
	"context"
	"errors"
	"time"

	"github.com/knarr-project/knarr/internal/store"
)

// compact forgets, at every tick, the revisions of a place older than the tick before. Continue tokens and watches from before
// that expire then.
func (s *Server) compact(ctx context.Context, at *place) {
	if s.cfg.CompactEvery < 0 {
		return
	}
	ticker := time.NewTicker(s.cfg.CompactEvery)
	defer ticker.Stop()
	var last, compacted int64
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if last > compacted {
			err := at.store.Compact(ctx, last)
			switch {
			case err == nil, errors.Is(err, store.ErrCompacted): // somebody else may have been there: another server of the same store
				compacted = last
				at.cache.Compacted(last)
			case ctx.Err() == nil:
				s.log.Error("compact the store", "revision", last, "err", err)
			}
		}
		revision, err := at.store.Revision(ctx)
		if err != nil {
			if ctx.Err() == nil {
				s.log.Error("read the store's revision", "err", err)
			}
			continue
		}
		last = revision
	}
}
