package apiserver

import (
	"context"
	"errors"
	"time"

	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/store"
)

// compact compacts a place at every tick up to its revision at the previous tick. Continue tokens
// and watches from before that revision then expire.
func (s *Server) compact(ctx context.Context, at *registry.Place) {
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
			err := at.Store.Compact(ctx, last)
			switch {
			// ErrCompacted: another server of the same store was faster
			case err == nil, errors.Is(err, store.ErrCompacted):
				compacted = last
				at.Cache.Compacted(last)
			case ctx.Err() == nil:
				s.log.Error("compact the store", "revision", last, "err", err)
			}
		}
		revision, err := at.Store.Revision(ctx)
		if err != nil {
			if ctx.Err() == nil {
				s.log.Error("read the store's revision", "err", err)
			}
			continue
		}
		last = revision
	}
}
