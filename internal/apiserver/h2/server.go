package h2

import (
	"context"
	"crypto/tls"
	"fmt"
	"math"
	"net/http"
	"time"

	"golang.org/x/net/http2"

	"github.com/knarr-project/knarr/internal/apiserver/socket"
	"github.com/knarr-project/knarr/internal/apiserver/taskpool"
)

// never is the library's idle timeout. The library does not know of detached streams, so a Conn
// enforces the server's idle timeout itself.
const never = time.Duration(math.MaxInt64)

// Configure makes the server serve HTTP/2 on Conns. Tasks of detached streams have their turns in
// the pool. writeTimeout is how long a client may take to receive what is written in a turn. Call
// Configure before the server serves.
func Configure(server *http.Server, pool *taskpool.Pool, writeTimeout time.Duration) error {
	conf := &http2.Server{IdleTimeout: never}
	if err := http2.ConfigureServer(server, conf); err != nil {
		return fmt.Errorf("configure HTTP/2: %w", err)
	}
	serve := func(server *http.Server, under *tls.Conn, handler http.Handler) {
		ctx := context.Background()
		// net/http hands over the connection's context this way.
		if of, ok := handler.(interface{ BaseContext() context.Context }); ok {
			ctx = of.BaseContext()
		}
		c := newConn(under, socket.From(ctx), pool, server.IdleTimeout, writeTimeout)
		conf.ServeConn(c, &http2.ServeConnOpts{
			Context: context.WithValue(ctx, connKey{}, c), Handler: handler, BaseConfig: server,
		})
	}
	server.TLSNextProto[http2.NextProtoTLS] = serve
	return nil
}

type connKey struct{}

// StreamOf returns the stream of a response, so that it can be detached; nil if it cannot be. ctx
// is the request's context, and w must be the library's own.
func StreamOf(ctx context.Context, w http.ResponseWriter) *Stream {
	c, _ := ctx.Value(connKey{}).(*Conn)
	if c == nil {
		return nil
	}
	id, ok := streamID(w)
	if !ok {
		return nil
	}
	return c.detachable(id)
}
