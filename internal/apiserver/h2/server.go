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

// never is the library's time for idle connections: it does not know of streams that were taken. A Conn looks to the server's own.
const never = time.Duration(math.MaxInt64)

// Configure makes the server serve HTTP/2 on Conns. The tasks of streams that are taken have their turns in the pool; patience is how long a
// client may take over what is written in a turn. Call it before the server serves.
func Configure(server *http.Server, pool *taskpool.Pool, patience time.Duration) error {
	conf := &http2.Server{IdleTimeout: never}
	if err := http2.ConfigureServer(server, conf); err != nil {
		return fmt.Errorf("configure HTTP/2: %w", err)
	}
	server.TLSNextProto[http2.NextProtoTLS] = func(server *http.Server, under *tls.Conn, handler http.Handler) {
		ctx := context.Background()
		if of, ok := handler.(interface{ BaseContext() context.Context }); ok { // net/http's way to hand over the connection's
			ctx = of.BaseContext()
		}
		c := newConn(under, socket.From(ctx), pool, server.IdleTimeout, patience)
		conf.ServeConn(c, &http2.ServeConnOpts{Context: context.WithValue(ctx, connKey{}, c), Handler: handler, BaseConfig: server})
	}
	return nil
}

type connKey struct{}

// Answer is the stream on which w, the library's own, answers a request with this context; nil when it can not be taken.
func Answer(ctx context.Context, w http.ResponseWriter) *Stream {
	c, _ := ctx.Value(connKey{}).(*Conn)
	if c == nil {
		return nil
	}
	id, ok := streamID(w)
	if !ok {
		return nil
	}
	return c.takeable(id)
}
