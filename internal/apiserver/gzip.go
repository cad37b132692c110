package apiserver

import (
	"bytes"
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
)

const (
	// Bodies smaller than this are sent as they are, as upstream.
	compressFrom = 128 * 1024
	compressAt   = 1 // gzip's fastest level
)

var zippers = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(nil, compressAt)
	if err != nil {
		panic(err) // the level is a constant
	}
	return w
}}

func compress(r *http.Request, body []byte) ([]byte, bool) {
	if len(body) < compressFrom || !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		return nil, false
	}
	w := zippers.Get().(*gzip.Writer)
	defer zippers.Put(w)
	var out bytes.Buffer
	out.Grow(len(body) / 4)
	w.Reset(&out)
	if _, err := w.Write(body); err != nil {
		return nil, false
	}
	if err := w.Close(); err != nil {
		return nil, false
	}
	return out.Bytes(), true
}
