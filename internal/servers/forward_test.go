package servers

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"
)

// forwarder serves a forwarder of the cluster, and returns a client that connects to it.
func (c *cluster) forwarder() *http.Client {
	c.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	f := NewForwarder(c.pool, c.user, slog.New(slog.NewTextHandler(c.t.Output(), nil)))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f.Serve(ctx, l) }()
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: c.ca.pool(), ServerName: Name, MinVersion: tls.VersionTLS12},
		ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, l.Addr().String())
		},
	}
	c.t.Cleanup(func() {
		transport.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			c.t.Error(err)
		}
	})
	return &http.Client{Transport: transport, Timeout: 20 * time.Second}
}

// until asks until the server answers, as a user repeats a command.
func (c *cluster) until(client *http.Client, want *fake) {
	c.t.Helper()
	last := ""
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		response, err := client.Get(base + "/")
		if err != nil {
			last = err.Error()
			continue
		}
		text, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if last = string(text); last == want.address {
			return
		}
	}
	c.t.Fatalf("not answered by %s within 20 s: %s", want.address, last)
}

func TestConnectionsAreForwardedToAServerThatServes(t *testing.T) {
	c := newCluster(t)
	order := c.order()
	client := c.forwarder()
	c.until(client, order[0])
	c.until(client, order[0])
	watch, err := client.Get(base + "/watch")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _, _ = io.Copy(io.Discard, watch.Body); _ = watch.Body.Close() }()
	order[0].listener.freeze(true)
	defer order[0].listener.freeze(false)
	within(t, "connections to a stopped server are closed", ended)
	c.until(client, order[1])
	order[1].unready.Store(true)
	c.until(client, order[2])
	order[1].unready.Store(false)
	order[2].kill()
	c.until(client, order[1])
}
