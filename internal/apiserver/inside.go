package apiserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"

	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/auth"
)

// insideKey is the context key of the user of a request that the server makes of itself. No request
// from outside has it.
type insideKey struct{}

// insideUser returns the user of a request that the server makes of itself.
func insideUser(ctx context.Context) (auth.User, bool) {
	user, ok := ctx.Value(insideKey{}).(auth.User)
	return user, ok
}

// errTooMuch ends a question whose answers from the API are larger than allowed.
var errTooMuch = errors.New("the question reads more objects than one question may")

// insideTransport makes requests of the server itself as a user, by function call. They pass all
// stages of the chain: authorization, flow control and audit.
type insideTransport struct {
	handler http.Handler
	user    auth.User
	id      string // the audit ID of all its requests
	left    atomic.Int64
}

// insideConfig returns a client configuration whose requests the server answers itself, as the
// user. All answers together have at most limit bytes.
func (i *insight) insideConfig(user auth.User, id string, limit int64) *rest.Config {
	user.Remarks = nil // the question has them
	t := &insideTransport{handler: i.handler(), user: user, id: id}
	t.left.Store(limit)
	return &rest.Config{Host: "https://inside", Transport: t, QPS: -1, UserAgent: "knarr-insight"}
}

// RoundTrip implements http.RoundTripper.
func (t *insideTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := context.WithValue(r.Context(), insideKey{}, t.user)
	in := r.Clone(ctx)
	in.RequestURI = (&url.URL{Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery}).RequestURI()
	in.RemoteAddr = "127.0.0.1:0"
	in.Proto, in.ProtoMajor, in.ProtoMinor = "HTTP/2.0", 2, 0
	in.Header.Set("Audit-Id", t.id)
	in.Header.Del("Accept-Encoding")
	if in.Body == nil {
		in.Body = http.NoBody
	}
	w := &insideWriter{header: http.Header{}, left: &t.left}
	if err := w.call(t.handler, in); err != nil {
		return nil, err
	}
	if r.Body != nil {
		_ = r.Body.Close()
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", w.code, http.StatusText(w.code)), StatusCode: w.code, Proto: in.Proto, ProtoMajor: 2,
		Header: w.header, Body: io.NopCloser(&w.body), ContentLength: int64(w.body.Len()), Request: r,
	}, nil
}

// insideWriter collects a response.
type insideWriter struct {
	header http.Header
	code   int
	body   bytes.Buffer
	left   *atomic.Int64
}

// call runs the handler. A handler that breaks off fails the request.
func (w *insideWriter) call(h http.Handler, r *http.Request) (err error) {
	defer func() {
		switch v := recover(); {
		case v == http.ErrAbortHandler:
			err = io.ErrUnexpectedEOF
		case v != nil:
			panic(v)
		case w.left.Load() < 0:
			err = errTooMuch
		case w.code == 0:
			w.code = http.StatusOK
		}
	}()
	h.ServeHTTP(w, r)
	return nil
}

func (w *insideWriter) Header() http.Header { return w.header }

func (w *insideWriter) WriteHeader(code int) {
	if w.code == 0 && code >= http.StatusOK {
		w.code = code
	}
}

func (w *insideWriter) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.left.Add(-int64(len(p))) < 0 {
		return 0, errTooMuch
	}
	return w.body.Write(p)
}

// Flush implements http.Flusher; the response is read when it is complete.
func (w *insideWriter) Flush() {}
