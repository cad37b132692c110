package run

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"k8s.io/client-go/rest"

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
	reach := servers.NewTransport(pool, keys.CA.Pool, keys.Node.Certificate)
	node, err := client.Remote(&rest.Config{Host: "https://" + servers.Name, Transport: reach})
	if err != nil {
		return nil, err
	}
	partsReach := servers.NewTransport(pool, keys.CA.Pool, nil)
	own := &rest.Config{Host: "https://" + servers.Name, Transport: partsReach}
	parts, err := client.Remote(withTokens(ctx, own, node, w.cfg.NodeName))
	if err != nil {
		return nil, err
	}
	w.remote = func(user string) (client.Interface, error) {
		if user == w.partsUser().Name {
			return parts, nil
		}
		return node, nil
	}
	follow := func(ctx context.Context) {
		if err := servers.Follow(ctx, parts, pool, log); err != nil {
			log.Warn("this node does not learn of further servers", "error", err)
		}
	}
	return process.Background(func(ctx context.Context) error {
		return process.Alongside(ctx, reach.Run, process.Part(follow),
			process.Part(func(ctx context.Context) { rotate(ctx, reach, partsReach) }))
	})(ctx)
}

// rotate opens connections again every now and then, until ctx ends.
func rotate(ctx context.Context, all ...*servers.Transport) {
	tick := time.NewTicker(rotateEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			for _, reach := range all {
				reach.Rotate()
			}
		}
	}
}
