package etcd

import (
	"log/slog"
	"path/filepath"

	"github.com/knarr-project/knarr/internal/pages"
)

// forgetAfter is the number of bytes written or read after which the pages of the database file are
// released. They are hardly read again: recent data is in etcd's buffers, and other readers use the
// cache. The tree needs a page once more when a neighbour is added.
const forgetAfter = 8 << 20

// touch counts bytes written or read. The caller must not hold any lock of the engine.
func (e *Engine) touch(bytes int) {
	if e.touched.Add(int64(bytes)) >= forgetAfter {
		e.touched.Store(0)
		e.forgetPages()
	}
}

func (e *Engine) forgetPages() {
	done, err := e.read()
	if err != nil {
		return
	}
	defer done()
	// The mapping has room for etcd's quota and a tenth. While the file fits into it, only Close
	// and Defragment remove the mapping.
	if e.server.Backend().Size() > e.space.hard || !e.mapping.TryLock() {
		return
	}
	defer e.mapping.Unlock()
	path, err := filepath.EvalSymlinks(e.path)
	if err == nil {
		err = pages.Forget(path)
	}
	if err != nil {
		slog.Debug("cannot release pages of the database", "component", "store", "error", err)
	}
}
