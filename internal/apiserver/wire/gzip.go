package wire

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
)

const (
	// Smaller bodies are not compressed, as upstream.
	GzipMinBytes = 128 * 1024
	GzipLevel    = 1 // gzip's fastest level
)

var gzipWriters = sync.Pool{New: func() any {
	w, err := gzip.NewWriterLevel(nil, GzipLevel)
	if err != nil {
		panic(err) // the level is a constant
	}
	return w
}}

// Compress compresses a body if it is large and the client accepts gzip; otherwise it reports
// false.
func Compress(r *http.Request, body []byte) ([]byte, bool) {
	if len(body) < GzipMinBytes || !AcceptsGzip(r) {
		return nil, false
	}
	var out bytes.Buffer
	out.Grow(len(body) / 4)
	err := GzipTo(&out, func(w io.Writer) error {
		_, err := w.Write(body)
		return err
	})
	return out.Bytes(), err == nil
}

// AcceptsGzip reports whether the client accepts gzip.
func AcceptsGzip(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
}

// GzipTo compresses what body writes.
func GzipTo(out io.Writer, body func(io.Writer) error) error {
	w := gzipWriters.Get().(*gzip.Writer)
	defer func() {
		w.Reset(io.Discard) // so that the pool does not keep the response alive
		gzipWriters.Put(w)
	}()
	w.Reset(out)
	if err := body(w); err != nil {
		return err
	}
	return w.Close()
}
