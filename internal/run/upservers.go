package run

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/process"
	"github.com/knarr-project/knarr/internal/servers"
)

// rotateEvery is the interval at which connections are opened again with the newest certificates,
// which are renewed weeks before they expire.
const rotateEvery = 12 * time.Hour

// reachServers returns the component by which the node of `knarr up` reaches the servers of its
// cluster over HTTPS, the one in its process first. It is empty for a cluster of one server, whose
// node calls the server directly.
func (w *worker) reachServers() process.Phase {
	if w.cfg.Join == "" && len(servers.Others(w.cfg.DataDir, w.ownAddress(w.cfg.Listen))) == 0 {
		return nil
	}
	return process.Phase{{Name: "access to servers", Start: w.startReach}}
}

// ownAddress is the address of this machine's server in the endpoints.
func (w *worker) ownAddress(listen string) string {
	at, err := netip.ParseAddrPort(listen)
	if err != nil {
		return ""
	}
	return net.JoinHostPort(w.cfg.AdvertiseAddress, strconv.Itoa(int(at.Port())))
}

func (w *worker) startReach(ctx context.Context) (func() error, error) {
	u, err := url.Parse(w.server.URL())
	if err != nil {
		return nil, err
	}
	keys, log := w.server.Keys(), w.log.With("component", "servers")
	pool := servers.NewPool(servers.Options{
		User: w.cfg.NodeName, Local: w.ownAddress(u.Host), Given: servers.Addresses(w.cfg.Join), Path: w.cfg.Path(servers.File), Log: log,
	})
	clients := map[string]client.Interface{}
	var parts []func(context.Context) error
	for user, leaf := range map[string]*pki.Leaf{w.nodeUser().Name: keys.Node, auth.UserProxy: keys.Proxy} {
		reach := servers.NewTransport(pool, keys.CA.Pool, func() *tls.Certificate { return leaf.Certificate() })
		c, err := client.Remote(&rest.Config{Host: "https://" + servers.Name, Transport: reach})
		if err != nil {
			return nil, err
		}
		clients[user] = c
		parts = append(parts, reach.Run, func(ctx context.Context) error { rotate(ctx, reach); return nil })
	}
	w.remote = func(user string) (client.Interface, error) {
		c, ok := clients[user]
		if !ok {
			return nil, fmt.Errorf("no part of a node is %s", user)
		}
		return c, nil
	}
	parts = append(parts, func(ctx context.Context) error {
		if err := servers.Follow(ctx, clients[auth.UserProxy], pool, log); err != nil {
			log.Warn("this node does not learn of further servers", "error", err)
		}
		return nil
	})
	return process.Background(func(ctx context.Context) error { return process.Alongside(ctx, parts...) })(ctx)
}

// rotate opens connections again every now and then, until ctx ends.
func rotate(ctx context.Context, reach *servers.Transport) {
	tick := time.NewTicker(rotateEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			reach.Rotate()
		}
	}
}
