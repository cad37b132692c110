package apiserver

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
	if len(body) < compressFrom || !takesGzip(r) {
		return nil, false
	}
	var out bytes.Buffer
	out.Grow(len(body) / 4)
	err := zip(&out, func(w io.Writer) error {
		_, err := w.Write(body)
		return err
	})
	return out.Bytes(), err == nil
}

func takesGzip(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
}

// zip compresses what body writes.
func zip(out io.Writer, body func(io.Writer) error) error {
	w := zippers.Get().(*gzip.Writer)
	defer func() {
		w.Reset(io.Discard) // so that the pool does not keep the response alive
		zippers.Put(w)
	}()
	w.Reset(out)
	if err := body(w); err != nil {
		return err
	}
	return w.Close()
}
