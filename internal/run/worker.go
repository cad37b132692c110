package run

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/controlplane"
	"github.com/knarr-project/knarr/internal/cri"
	"github.com/knarr-project/knarr/internal/dns"
	"github.com/knarr-project/knarr/internal/image"
	"github.com/knarr-project/knarr/internal/insight/spans"
	"github.com/knarr-project/knarr/internal/kubelet"
	"github.com/knarr-project/knarr/internal/kubelet/settings"
	"github.com/knarr-project/knarr/internal/loadbalancer/announce"
	"github.com/knarr-project/knarr/internal/network"
	"github.com/knarr-project/knarr/internal/network/policy"
	"github.com/knarr-project/knarr/internal/network/traffic"
	"github.com/knarr-project/knarr/internal/process"
	"github.com/knarr-project/knarr/internal/proxy"
	"github.com/knarr-project/knarr/internal/trace"
	"github.com/knarr-project/knarr/internal/volume"
	"github.com/knarr-project/knarr/internal/volume/local"
)

// worker holds a node's parts during the start.
type worker struct {
	cfg      *config.Config
	log      *slog.Logger
	settings *settings.Settings
	flagz    func() map[string]string
	restart  func() // Params.Restart
	// server is the control plane in the same process. It is nil if the node has joined another
	// machine's server.
	server *controlplane.Server
	// remote returns clients by identity over HTTPS. If it is nil, the node uses server.
	remote func(user string) (client.Interface, error)
	// peers is the pod network's access to the API; nil selects the node's own.
	peers client.Interface

	// policies makes the agent of network policies once; nil if this process does not enforce them.
	policies func() (*policy.Agent, error)

	spans      *spans.Ring   // what happens on the node without a write
	tracer     *trace.Tracer // nil unless the settings ask for traces
	runtime    *cri.Services
	runtimePID func() int  // pid of the included runtime; nil if another one is used
	kubeletTLS *tls.Config // set if server is nil
	joined     *joined     // set if the node has joined another machine's server
}

// parts are the components of every node, once the runtime and the access to the API exist.
func (w *worker) parts() process.Phase {
	w.policies, w.spans = sync.OnceValues(w.newPolicies), &spans.Ring{}
	return process.Phase{{Name: "pod network", Start: w.startNetwork}, {Name: "service proxy", Start: w.startProxy}, {Name: "network policies", Start: w.startPolicies}, {Name: "DNS", Start: w.startDNS}, {Name: "node agent", Start: w.startKubelet}}
}

// client returns access to the API for a part of the node: to the server in this process, or over
// HTTPS.
func (w *worker) client(u auth.User) (client.Interface, error) {
	if w.remote != nil {
		return w.remote(u.Name)
	}
	return w.server.Client(u), nil
}

func (w *worker) nodeUser() auth.User {
	return auth.Component("system:node:"+w.cfg.NodeName, auth.GroupNodes)
}

// partsUser is the identity of the node's parts beside the node agent.
func (w *worker) partsUser() auth.User { return auth.NodePart(w.cfg.NodeName) }

func (w *worker) startRuntime(ctx context.Context) (func() error, error) {
	protect(w.settings, w.log)
	if err := w.openTracer(ctx); err != nil {
		return nil, err
	}
	connection := cri.Options{Timeout: w.settings.RuntimeRequestTimeout.Duration, Tracer: w.tracer.Provider()}
	if w.cfg.RuntimeEndpoint != "" {
		connection.Images = w.settings.ImageServiceEndpoint
		services, err := cri.Connect(ctx, w.cfg.RuntimeEndpoint, connection)
		if err != nil {
			return nil, err
		}
		w.runtime = services
		return func() error { <-ctx.Done(); services.Close(context.WithoutCancel(ctx)); return w.tracer.Close() }, nil
	}
	r, err := cri.Start(ctx, cri.Config{
		DataDir: w.cfg.DataDir, RunDir: w.cfg.RunDir, RegistryDir: w.cfg.RegistryHosts, Logger: w.log.With("component", "runtime"), Connection: connection,
	})
	if err != nil {
		return nil, err
	}
	images, err := image.Dial(r.Socket)
	if err != nil {
		return nil, err
	}
	defer images.Close()
	if err := images.EnsurePause(ctx, cri.DefaultSandboxImage, func() ([]byte, error) { return r.Program("pause") }); err != nil {
		return nil, err
	}
	w.runtime, w.runtimePID = r.Services, r.PID
	// A runtime that was started by an earlier knarr has that one's score.
	if err := setOOMScore(r.PID(), int(*w.settings.OOMScoreAdj)); err != nil {
		w.log.Debug("cannot set the runtime's OOM score", "error", err)
	}
	return func() error { r.Wait(); return w.tracer.Close() }, nil
}

// openTracer starts to send spans if the settings have an endpoint or a sampling rate.
func (w *worker) openTracer(ctx context.Context) (err error) {
	if w.settings.Tracing == nil {
		return nil
	}
	w.tracer, err = trace.Open(ctx, w.settings.Tracing, trace.Options{Service: "kubelet", Instance: w.cfg.NodeName, Log: w.log.With("component", "kubelet")})
	return err
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
	c := w.peers
	var err error
	if c == nil {
		if c, err = w.client(w.partsUser()); err != nil {
			return nil, err
		}
	}
	cfg := networkConfig(w.cfg, c)
	cfg.Spans = w.spans
	if w.policies != nil {
		if cfg.Isolation, err = w.policies(); err != nil {
			return nil, err
		}
	}
	n, err := network.New(cfg)
	if err != nil {
		return nil, err
	}
	return process.Background(n.Run)(ctx)
}

func (w *worker) startProxy(ctx context.Context) (func() error, error) {
	c, err := w.client(w.partsUser())
	if err != nil {
		return nil, err
	}
	own := networkConfig(w.cfg, c)
	p, err := proxy.New(proxy.Config{NodeName: w.cfg.NodeName, Client: c, ClusterCIDRs: own.ClusterCIDRs, ServiceCIDRs: own.ServiceCIDRs, Spans: w.spans})
	if err != nil {
		return nil, err
	}
	return process.Background(func(ctx context.Context) error {
		return announcing(ctx, w.cfg, c, w.log, p.Run)
	})(ctx)
}

// announcing runs the proxy, and beside it the announcements of Services' addresses. Both read the
// same Views.
func announcing(ctx context.Context, cfg *config.Config, c client.Interface, log *slog.Logger, proxy func(context.Context) error) error {
	ip, err := netip.ParseAddr(cfg.AdvertiseAddress)
	if err != nil {
		return fmt.Errorf("advertise-address: %w", err)
	}
	events := client.NewRecorder(c, "load-balancer", cfg.NodeName)
	agent, err := announce.New(announce.Config{NodeName: cfg.NodeName, NodeIP: ip.Unmap(), Client: c, Events: events, Log: log.With("component", "load balancer")})
	if err != nil {
		return err
	}
	return process.Alongside(ctx, process.Part(events.Run), agent.Run, proxy)
}

func (w *worker) newPolicies() (*policy.Agent, error) {
	c, err := w.client(w.partsUser())
	if err != nil {
		return nil, err
	}
	own, err := w.client(w.nodeUser())
	if err != nil {
		return nil, err
	}
	// Without an account for the parts, the server publishes no peers of policies either.
	return policy.New(policy.Config{NodeName: w.cfg.NodeName, Client: c, Own: own, AllPods: w.joined != nil && !w.joined.account, Spans: w.spans})
}

// startPolicies starts to enforce network policies, and beside it to count the connections that
// they allow and deny.
func (w *worker) startPolicies(ctx context.Context) (func() error, error) {
	agent, err := w.policies()
	if err != nil {
		return nil, err
	}
	c, err := w.client(w.partsUser())
	if err != nil {
		return nil, err
	}
	own := networkConfig(w.cfg, c)
	counter, err := traffic.New(traffic.Config{NodeName: w.cfg.NodeName, Client: c, ClusterCIDRs: own.ClusterCIDRs, ServiceCIDRs: own.ServiceCIDRs})
	if err != nil {
		return nil, err
	}
	return process.Background(func(ctx context.Context) error {
		return process.Alongside(ctx, agent.Run, counter.Run)
	})(ctx)
}

func (w *worker) startKubelet(ctx context.Context) (func() error, error) {
	c, err := w.client(w.nodeUser())
	if err != nil {
		return nil, err
	}
	serving := w.kubeletTLS
	if serving == nil {
		serving = &tls.Config{
			GetCertificate: w.server.Keys().Kubelet.GetCertificate, ClientCAs: w.server.Keys().CA.Pool().Clone(),
			ClientAuth: tls.RequestClientCert, MinVersion: tls.VersionTLS12,
		}
	}
	if serving, err = w.servingTLS(serving); err != nil {
		return nil, err
	}
	w.followCluster()
	events := client.NewRecorder(c, "kubelet", w.cfg.NodeName)
	if qps := *w.settings.EventRecordQPS; qps > 0 {
		events.Limit = flowcontrol.NewTokenBucketRateLimiter(float32(qps), max(int(w.settings.EventBurst), 1))
	}
	root, err := kubeletDir(w.cfg, w.log)
	if err != nil {
		return nil, err
	}
	var agent *kubelet.Kubelet
	parts, err := w.client(w.partsUser())
	if err != nil {
		return nil, err
	}
	disks := local.New(local.Options{Client: c, Volumes: parts, NodeName: w.cfg.NodeName, Folders: w.cfg.LocalFolders(), Reserved: w.cfg.LocalStorageReserved, List: localFolderList(w.cfg), Log: w.log.With("component", "local volumes")})
	drivers := volume.NewCSI(volume.CSIOptions{
		Client: c, NodeName: w.cfg.NodeName, RootDir: root, Events: events, Log: w.log.With("component", "volumes"),
		Announce: func(ctx context.Context, name string) error { return agent.AnnounceVolume(ctx, name) }, Released: func() { agent.VolumeReleased() },
	})
	volumes := volume.New(volume.Options{
		Client: c, Local: disks.Prepare, NodeName: w.cfg.NodeName, Log: w.log.With("component", "volumes"), CSI: drivers,
		Allocatable: func() corev1.ResourceList { return agent.Allocatable() },
	})
	var annotations func() map[string]string
	var owned func(*corev1.Node) error
	if w.joined != nil {
		annotations, owned = w.joined.annotations, w.joined.owned
	}
	var certificate func() *tls.Certificate
	var renewErrors func(string) int64
	server := ""
	if w.joined != nil {
		certificate, renewErrors, server = w.joined.node.current.Load, w.joined.renewErrors, w.joined.server
	}
	agent, err = kubelet.New(kubelet.Config{
		ClientCertificate: certificate, RenewErrors: renewErrors, Server: server,
		NodeAnnotations: annotations, NodeOwned: owned,
		ClientCAs: w.clientCAs(),
		NodeName:  w.cfg.NodeName, RootDir: root, VolumesInUse: drivers.VolumesInUse, CSI: drivers, Client: c, Events: events,
		Runtime: w.runtime.Runtime, Images: w.runtime.Images, Tracer: w.tracer, Spans: w.spans, RuntimeEndpoint: w.runtime.Endpoint, Settings: w.settings, Flagz: w.flagz, Volumes: volumes,
		LogsDir: w.logsDir(), CgroupRoot: w.cfg.CgroupRoot, Listen: w.nodeListen(), TLS: serving,
		NodeIPs: []string{w.cfg.NodeAddress()}, NodeLabels: w.cfg.NodeLabels, CredentialConfig: w.cfg.CredentialConfig, CredentialDir: w.cfg.CredentialDir,
		PIDs: w.pids(), Logger: w.log.With("component", "kubelet"),
	})
	if err != nil {
		return nil, err
	}
	return process.Background(func(ctx context.Context) error {
		ctx, release := agent.Outlast(ctx)
		defer release()
		return process.Alongside(ctx, process.Part(events.Run), process.Part(volumes.Run), disks.Run, drivers.Run, agent.Run)
	})(ctx)
}

// clientCAs returns the CAs of clients of the node's API if they change while it works, else nil.
func (w *worker) clientCAs() func() *x509.CertPool {
	switch {
	case w.settings.Authentication.X509.ClientCAFile != "":
		return nil
	case w.server != nil:
		return w.server.Keys().CA.Pool
	case w.joined != nil:
		return w.joined.trust.pool
	}
	return nil
}

// pids returns the processes whose usage /stats/summary reports.
func (w *worker) pids() map[string]func() int {
	pids := map[string]func() int{"kubelet": os.Getpid}
	if w.runtimePID != nil {
		pids["runtime"] = w.runtimePID
	}
	return pids
}

// dnsAddress is the cluster IP of the DNS Service, or the zero Addr if the server chooses it.
func dnsAddress(cfg *config.Config) netip.Addr {
	addr, _ := netip.ParseAddr(cfg.DNSAddress())
	return addr
}

func (w *worker) startDNS(ctx context.Context) (func() error, error) {
	c, err := w.client(w.partsUser())
	if err != nil {
		return nil, err
	}
	own := networkConfig(w.cfg, c)
	server, err := dns.New(dns.Config{
		NodeName: w.cfg.NodeName, Client: c, Domain: w.cfg.ClusterDomain, ClusterIP: dnsAddress(w.cfg),
		ClusterCIDRs: own.ClusterCIDRs, ServiceCIDRs: own.ServiceCIDRs, Spans: w.spans,
	})
	if err != nil {
		return nil, err
	}
	return process.Background(server.Run)(ctx)
}
