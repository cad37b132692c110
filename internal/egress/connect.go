package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// connect is a proxy for HTTP's CONNECT. Each tunneled connection has its own connection to the
// proxy.
type connect struct {
	network, address string
	secure           *tls.Config // nil means without TLS
}

func (p *connect) reach(ctx context.Context) (func(context.Context, string) (net.Conn, error), error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, p.network, p.address)
	if err != nil {
		return nil, err
	}
	if p.secure != nil {
		secured := tls.Client(conn, p.secure)
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, err
		}
		conn = secured
	}
	return func(ctx context.Context, address string) (net.Conn, error) {
		first, err := p.ask(ctx, conn, address)
		if err != nil {
			_ = conn.Close()
			return nil, err
		}
		if len(first) > 0 {
			return &bufferedConn{Conn: conn, in: io.MultiReader(bytes.NewReader(first), conn)}, nil
		}
		return conn, nil
	}, nil
}

// bufferedConn is a connection whose server spoke first, as gRPC servers without TLS do. The
// proxy's answer already contained the server's first bytes.
type bufferedConn struct {
	net.Conn
	in io.Reader
}

func (c *bufferedConn) Read(b []byte) (int, error) { return c.in.Read(b) }

// ask sends the CONNECT request and waits for the answer until ctx ends. It returns the bytes that
// followed the answer.
func (p *connect) ask(ctx context.Context, conn net.Conn, address string) ([]byte, error) {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(over)
		_ = conn.SetDeadline(time.Unix(1, 0)) // reads and writes fail at once
	})
	first, err := p.answered(conn, address)
	if !stop() {
		<-over // the connection is unusable, even if the answer has just arrived
		return nil, fmt.Errorf("reading HTTP response from CONNECT to %s via proxy %s failed: %w", address, p.address, context.Cause(ctx))
	}
	return first, err
}

func (p *connect) answered(conn net.Conn, address string) ([]byte, error) {
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", address, address); err != nil {
		return nil, fmt.Errorf("sending CONNECT to %s via proxy %s failed: %w", address, p.address, err)
	}
	// Limit the headers, so that a proxy cannot exhaust the memory.
	in := bufio.NewReader(io.LimitReader(conn, http.DefaultMaxHeaderBytes))
	response, err := http.ReadResponse(in, &http.Request{Method: http.MethodConnect})
	if err != nil {
		return nil, fmt.Errorf("reading HTTP response from CONNECT to %s via proxy %s failed: %w", address, p.address, err)
	}
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("proxy error from %s while dialing %s, code %d: %s", p.address, address, response.StatusCode, response.Status)
	}
	return in.Peek(in.Buffered())
}
