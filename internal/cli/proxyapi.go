package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/durable"
	"github.com/knarr-project/knarr/internal/process"
	"github.com/knarr-project/knarr/internal/servers"
)

// proxyAPI are the flags of `knarr proxy-api`.
type proxyAPI struct {
	listen, kubeconfig, context, out, dataDir string
	further                                   []string
}

func proxyAPICommand() *cobra.Command {
	p := &proxyAPI{}
	cmd := &cobra.Command{
		Use: "proxy-api", Short: "Reach a cluster of several servers at one local address", Args: cobra.NoArgs,
		Long: "Forwards connections at a local address to a server of the cluster that works, and writes a kubeconfig for that\n" +
			"address. kubectl, Helm and other clients then need to know one address only. Encryption and identity pass\n" +
			"through: the proxy reads no requests. It learns the servers from --kubeconfig, --server and, if the user may read\n" +
			"it, EndpointSlice default/kubernetes. It remembers them in the user's cache folder. It stays in the foreground.",
		Example: "knarr proxy-api --kubeconfig cluster.yaml --kubeconfig-out ~/.kube/config\n" +
			"knarr proxy-api --kubeconfig cluster.yaml --server 10.0.0.6,10.0.0.7 --listen 127.0.0.1:7000",
		RunE: func(cmd *cobra.Command, _ []string) error {
			log := slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), nil))
			err := p.run(cmd.Context(), log, func(line string) { fmt.Fprintln(cmd.OutOrStdout(), line) })
			if err != nil {
				return fmt.Errorf("proxy-api: %w", err)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&p.listen, "listen", "127.0.0.1:7445", "`IP:PORT` at which clients connect; port 0 selects a free one")
	f.StringVar(&p.kubeconfig, "kubeconfig", "", "kubeconfig `FILE` of the cluster (default: that of `knarr kubectl`)")
	f.StringVar(&p.context, "context", "", "`NAME` of the kubeconfig's context (default: its current one)")
	f.StringSliceVar(&p.further, "server", nil, "further `SERVERS` of the cluster: HOST, HOST:PORT or URL, with commas between")
	f.StringVar(&p.out, "kubeconfig-out", "", "`FILE` for a kubeconfig that leads to the local address")
	f.StringVar(&p.dataDir, "data-dir", "", "take the kubeconfig of the cluster with this data `DIR` or name on this machine")
	onlyOnCommandLine(cmd, "listen", "kubeconfig", "context", "server", "kubeconfig-out", "data-dir")
	return cmd
}

// run forwards connections until ctx ends. say shows a line to the user.
func (p *proxyAPI) run(ctx context.Context, log *slog.Logger, say func(string)) error {
	listen, err := netip.ParseAddrPort(p.listen)
	if err != nil {
		return fmt.Errorf("--listen: %q is not usable: an address and a port, such as 127.0.0.1:7445", p.listen)
	}
	source, err := p.load()
	if err != nil {
		return err
	}
	reach, err := clientcmd.NewDefaultClientConfig(*source, nil).ClientConfig()
	if err != nil {
		return err
	}
	pool, err := p.pool(reach, log)
	if err != nil {
		return err
	}
	anonymous := rest.AnonymousClientConfig(reach) // probes need no identity
	_, probes, err := servers.Config(anonymous, pool)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	l, err := net.Listen("tcp", listen.String())
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	defer l.Close()
	if p.out != "" {
		if err := writeLocal(source, "https://"+l.Addr().String(), p.out); err != nil {
			return fmt.Errorf("--kubeconfig-out: %w", err)
		}
	}
	say(fmt.Sprintf("https://%s leads to the servers %s", l.Addr(), strings.Join(pool.Order(), ", ")))
	if p.out != "" {
		say("kubeconfig: " + p.out)
	}
	return process.Alongside(ctx,
		func(ctx context.Context) error { return servers.NewForwarder(pool, probes, log).Serve(ctx, l) },
		probes.Run,
		func(ctx context.Context) error { learnServers(ctx, reach, pool, log); return nil },
	)
}

// load reads the kubeconfig and reduces it to one context with all files inline.
func (p *proxyAPI) load() (*clientcmdapi.Config, error) {
	loader, err := kubeconfig(p.dataDir, p.kubeconfig, p.context)
	if err != nil {
		return nil, err
	}
	raw, err := loader.RawConfig()
	if err != nil {
		return nil, err
	}
	loaded := &raw
	if p.context != "" {
		loaded.CurrentContext = p.context
	}
	if loaded.Contexts[loaded.CurrentContext] == nil {
		return nil, fmt.Errorf("kubeconfig: there is no context %q; --kubeconfig and --context choose one", loaded.CurrentContext)
	}
	if err := clientcmdapi.MinifyConfig(loaded); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	if err := clientcmdapi.FlattenConfig(loaded); err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	return loaded, nil
}

// pool returns the known servers. They come from the kubeconfig, from --server and from the list
// that an earlier run has stored. A cluster of this machine has a list of its own.
func (p *proxyAPI) pool(reach *rest.Config, log *slog.Logger) (*servers.Pool, error) {
	u, err := url.Parse(reach.Host)
	if err != nil || u.Scheme != "https" {
		return nil, fmt.Errorf("kubeconfig: server %q is not usable: a URL that begins with https://", reach.Host)
	}
	if strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("kubeconfig: server %q is not usable: a path is different for each server", reach.Host)
	}
	address := u.Host
	if u.Port() == "" {
		address = net.JoinHostPort(u.Hostname(), "443")
	}
	var given []string
	if address != p.listen { // a kubeconfig of an earlier --kubeconfig-out
		given = append(given, address)
	}
	for _, one := range p.further {
		url, err := config.JoinURL(one)
		if err != nil {
			return nil, fmt.Errorf("--server: %w", err)
		}
		given = append(given, servers.Addresses(url)...)
	}
	// A data folder has the list beside its kubeconfig.
	beside := cmp.Or(p.kubeconfig, os.Getenv(clientcmd.RecommendedConfigPathEnvVar))
	given = append(given, servers.Others(filepath.Dir(beside), given...)...)
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	pool := servers.NewPool(servers.Options{User: host, Given: given, Path: listOf(reach.CAData), Log: log})
	if len(pool.Order()) == 0 {
		return nil, fmt.Errorf("the kubeconfig leads to this proxy itself (%s), and no server is known: name one with --server", p.listen)
	}
	return pool, nil
}

// listOf returns the file of a cluster's servers in the user's cache folder, or "" if there is no
// such folder.
func listOf(ca []byte) string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	dir = filepath.Join(dir, "knarr")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return ""
	}
	sum := sha256.Sum256(ca)
	return filepath.Join(dir, "servers-"+hex.EncodeToString(sum[:8])+".json")
}

// writeLocal writes a kubeconfig for the local address. Certificates of API servers have the name
// kubernetes.default.svc, wherever they are reached.
func writeLocal(source *clientcmdapi.Config, server, path string) error {
	local := source.DeepCopy()
	for _, cluster := range local.Clusters {
		cluster.Server, cluster.TLSServerName, cluster.ProxyURL = server, servers.Name, ""
	}
	data, err := clientcmd.Write(*local)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return durable.Replace(path, data)
}

// learnInterval is the time between reads of the cluster's servers.
const learnInterval = time.Minute

// learnServers reads the cluster's servers every minute, if the kubeconfig's user may.
func learnServers(ctx context.Context, config *rest.Config, pool *servers.Pool, log *slog.Logger) {
	reach, _, err := servers.Config(config, pool)
	if err != nil {
		log.Info("the cluster's servers are not learned: the user's credentials come from a program", "error", err)
		return
	}
	c, err := client.Remote(reach)
	if err != nil {
		log.Warn("the cluster's servers are not learned", "error", err)
		return
	}
	told := false
	for ctx.Err() == nil {
		limited, cancel := context.WithTimeout(ctx, learnInterval)
		slice, err := client.Get[*discoveryv1.EndpointSlice](limited, c, "default", "kubernetes")
		if err == nil {
			err = pool.Learn(client.ReadyAddresses([]*discoveryv1.EndpointSlice{slice}, "https"))
		}
		cancel()
		if err != nil && ctx.Err() == nil && !told && !errors.Is(err, context.DeadlineExceeded) {
			told = true
			log.Info("the cluster's servers are not learned; --server names them", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(learnInterval):
		}
	}
}
