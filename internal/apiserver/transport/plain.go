package transport

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"slices"

	"github.com/knarr-project/knarr/internal/apiserver/taskpool"
)

// plain is net/http with its own HTTP/2, unchanged. No response is detached from its handler.
type plain struct{}

// Prepare implements Transport.
func (plain) Prepare(server *http.Server, listener net.Listener) (net.Listener, error) {
	if server.TLSConfig == nil {
		return listener, nil
	}
	for _, proto := range []string{"h2", "http/1.1"} {
		if !slices.Contains(server.TLSConfig.NextProtos, proto) {
			server.TLSConfig.NextProtos = append(server.TLSConfig.NextProtos, proto)
		}
	}
	return tls.NewListener(listener, server.TLSConfig), nil
}

// Close implements Transport.
func (plain) Close() error { return nil }

// Lanes implements Transport.
func (plain) Lanes() *taskpool.Lanes { return nil }

// GoAway implements Transport. Over HTTP/2, net/http makes a GOAWAY frame of this header.
func (plain) GoAway(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Connection", "close") }

// CanDetachConnection implements Transport.
func (plain) CanDetachConnection(*http.Request) bool { return false }

// DetachConnection implements Transport.
func (plain) DetachConnection(http.ResponseWriter, *http.Request) (Response, error) {
	return nil, errors.ErrUnsupported
}

// DetachStream implements Transport.
func (plain) DetachStream(http.ResponseWriter, *http.Request) Response { return nil }
