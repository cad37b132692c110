package run

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/cri"
	"github.com/knarr-project/knarr/internal/image"
	"github.com/knarr-project/knarr/internal/network"
	"github.com/knarr-project/knarr/internal/proxy"
)

// worker holds a node's parts while they are put together.
type worker struct {
	cfg *config.Config
	log *slog.Logger
	// server is the control plane in the same process; nil where the node joined another machine's.
	server *server
	// remote are clients by identity where server is nil.
	remote func(user string) (client.Interface, error)

	runtime *cri.Services
}

// client gives a part of the node its access: to the server in this process, or over HTTPS.
func (w *worker) client(u auth.User) (client.Interface, error) {
	if w.server != nil {
		return w.server.api.Client(u), nil
	}
	return w.remote(u.Name)
}

func (w *worker) nodeUser() auth.User {
	return auth.Component("system:node:"+w.cfg.NodeName, auth.GroupNodes)
}

func (w *worker) startRuntime(ctx context.Context) (func() error, error) {
	if w.cfg.RuntimeEndpoint != "" {
		services, err := cri.Connect(ctx, w.cfg.RuntimeEndpoint, "")
		if err != nil {
			return nil, err
		}
		w.runtime = services
		return func() error { <-ctx.Done(); services.Close(context.WithoutCancel(ctx)); return nil }, nil
	}
	r, err := cri.Start(ctx, cri.Config{
		DataDir: w.cfg.DataDir, RunDir: w.cfg.RunDir, RegistryDir: w.cfg.RegistryHosts, Logger: w.log.With("component", "runtime"),
	})
	if err != nil {
		return nil, err
	}
	images, err := image.Dial(r.Socket)
	if err != nil {
		return nil, err
	}
	defer images.Close()
	if err := images.EnsurePause(ctx, cri.DefaultSandboxImage, func() ([]byte, error) { return cri.Program("pause") }); err != nil {
		return nil, err
	}
	w.runtime = r.Services
	return func() error { r.Wait(); return nil }, nil
}

func networkConfig(cfg *config.Config, c client.Interface) network.Config {
	n := network.Config{
		NodeName: cfg.NodeName, Client: c, SocketPath: filepath.Join(cfg.RunDir, "cni.sock"),
		CNIConfDir: cfg.Path("cni", "net.d"), DataDir: cfg.Path("network"),
	}
	if p, err := netip.ParsePrefix(cfg.PodCIDR); err == nil {
		n.ClusterCIDRs = []netip.Prefix{p}
	}
	if p, err := netip.ParsePrefix(cfg.ServiceCIDR); err == nil {
		n.ServiceCIDRs = []netip.Prefix{p}
	}
	return n
}

func (w *worker) startNetwork(ctx context.Context) (func() error, error) {
	c, err := w.client(w.nodeUser())
	if err != nil {
		return nil, err
	}
	n, err := network.New(networkConfig(w.cfg, c))
	if err != nil {
		return nil, err
	}
	return Background(n.Run)(ctx)
}

func (w *worker) startProxy(ctx context.Context) (func() error, error) {
	c, err := w.client(auth.Component(auth.UserProxy))
	if err != nil {
		return nil, err
	}
	first, last, err := w.cfg.NodePorts()
	if err != nil {
		return nil, err
	}
	_ = first
	_ = last
	p, err := proxy.New(proxy.Config{NodeName: w.cfg.NodeName, Client: c})
	if err != nil {
		return nil, fmt.Errorf("service proxy: %w", err)
	}
	return Background(p.Run)(ctx)
}
