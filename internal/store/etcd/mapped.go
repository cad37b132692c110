package etcd

import (
	"log/slog"
	"path/filepath"

	"github.com/knarr-project/knarr/internal/pages"
)

// forgetAfter is how many bytes are written or read until the pages of the database's file are given back. They are read once more, if at all, when the
// tree gets another page beside them; what changes is read from etcd's buffers and by everybody else from the cache.
const forgetAfter = 8 << 20

// touch notes that so many bytes have been written or read. Nothing of the engine may be held.
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
	// Only Close and Defragment take the mapping away, as long as the file fits into it: it was made for the quota and a tenth.
	if e.server.Backend().Size() > quota || !e.mapping.TryLock() {
		return
	}
	defer e.mapping.Unlock()
	path, err := filepath.EvalSymlinks(e.path)
	if err == nil {
		err = pages.Forget(path)
	}
	if err != nil {
		slog.Debug("pages of the database can not be given back", "component", "store", "error", err)
	}
}
