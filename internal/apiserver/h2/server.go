package h2

import (
	"context"
	"crypto/tls"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"time"

	"golang.org/x/net/http2"

	"github.com/knarr-project/knarr/internal/apiserver/deliver"
)

// never is the library's time for idle connections: it does not know of streams that were taken. A Conn looks to the server's own.
const never = time.Duration(math.MaxInt64)

// Configure makes the server serve HTTP/2 on Conns. The tasks of streams that are taken have their turns in the pool; patience is how long a
// client may take over what is written in a turn. Call it before the server serves.
func Configure(server *http.Server, pool *deliver.Pool, patience time.Duration) error {
	conf := &http2.Server{IdleTimeout: never}
	if err := http2.ConfigureServer(server, conf); err != nil {
		return fmt.Errorf("configure HTTP/2: %w", err)
	}
	server.TLSNextProto[http2.NextProtoTLS] = func(server *http.Server, under *tls.Conn, handler http.Handler) {
		ctx := context.Background()
		if of, ok := handler.(interface{ BaseContext() context.Context }); ok { // net/http's way to hand over the connection's
			ctx = of.BaseContext()
		}
		c := newConn(under, deliver.From(ctx), pool, server.IdleTimeout, patience)
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

// streamID is the number of the stream that w answers on. The library tells it nobody, so it is looked up in what it is made of; should that change one day, no
// answer is taken any more, which TestAnAnswerIsTaken notices.
func streamID(w http.ResponseWriter) (uint32, bool) {
	v := reflect.ValueOf(w)
	for _, field := range []string{"rws", "stream", "id"} {
		if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
			return 0, false
		}
		v = v.Elem().FieldByName(field)
	}
	if !v.IsValid() || v.Kind() != reflect.Uint32 {
		return 0, false
	}
	return uint32(v.Uint()), true
}
