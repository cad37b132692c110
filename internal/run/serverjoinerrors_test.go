package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/spf13/pflag"
	"k8s.io/client-go/util/cert"

	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/network/nettest"
)

func TestAServerThatMayNotJoinIsRefused(t *testing.T) {
	a := startServer(t, newConfig(t, "a"))
	other := startServer(t, newConfig(t, "z"))
	valid := string(read(t, a.token(t, groupServers)))
	id, rest, _ := strings.Cut(valid, ".")
	_, hash, _ := strings.Cut(rest, ".")
	node := newConfig(t, "n")
	if err := os.MkdirAll(node.Path("pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(node.Path("pki", "node.pem"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		change func(c *config.Config)
		want   []string
	}{
		"without a token":                {func(c *config.Config) { c.TokenFile = "" }, []string{"--token-file is missing", "knarr token create --server"}},
		"with an empty file":             {func(c *config.Config) { c.TokenFile = tokenFile(t, "") }, []string{"token-file", "is empty"}},
		"with half a token":              {func(c *config.Config) { c.TokenFile = tokenFile(t, "abc.def") }, []string{"ID.SECRET.CAHASH"}},
		"with a wrong secret":            {func(c *config.Config) { c.TokenFile = tokenFile(t, id+".aaaaaaaaaaaaaaaa."+hash) }, []string{"does not know the token"}},
		"with a token for nodes":         {func(c *config.Config) { c.TokenFile = a.token(t, groupNodes) }, []string{"not for servers", "knarr token create --server"}},
		"with another cluster's CA hash": {func(c *config.Config) { c.TokenFile = other.token(t, groupServers) }, []string{"not the one that the token was made for"}},
		"with the name of a member":      {func(c *config.Config) { c.NodeName = "a" }, []string{`server "a" is a member and runs`, "--node-name"}},
		"with an outside etcd":           {func(c *config.Config) { c.StoreEndpoints = []string{"http://127.0.0.1:1"} }, []string{"leave out --store"}},
		"with a node's folder":           {func(c *config.Config) { c.DataDir = node.DataDir }, []string{"certificates of a node", "knarr purge"}},
		"at an address without a server": {func(c *config.Config) { c.Join = "https://" + nettest.FreeAddress(t) }, []string{"nothing listens at port"}},
	} {
		cfg := a.joining(t, "b")
		tt.change(cfg)
		err := refused(t, cfg)
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
		if has, err := hasKeys(cfg); has || err != nil {
			t.Errorf("%s: the folder has keys, %v", name, err)
		}
		if cfg.DataDir == node.DataDir {
			continue
		}
		if _, err := os.Stat(cfg.DataDir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the folder stays: %v", name, err)
		}
	}
	if members := a.members(t); len(members) != 1 {
		t.Errorf("members %+v", members)
	}
}

func TestAServerOfAnotherClusterIsRefused(t *testing.T) {
	a, z := startServer(t, newConfig(t, "a")), startServer(t, newConfig(t, "z"))
	z.end(t)
	z.cfg.Join, z.cfg.TokenFile = "https://"+a.cfg.Listen, a.token(t, groupServers)
	if err := refused(t, z.cfg); err == nil || !strings.Contains(err.Error(), "a cluster of its own") {
		t.Errorf("with a store: %v", err)
	}
	if err := os.RemoveAll(z.cfg.Path("etcd")); err != nil {
		t.Fatal(err)
	}
	if err := refused(t, z.cfg); err == nil || !strings.Contains(err.Error(), "another cluster") {
		t.Errorf("with keys: %v", err)
	}
}

func TestSettingsThatDifferAreRefusedByName(t *testing.T) {
	first := newConfig(t, "a")
	first.ServiceCIDR, first.ClusterDomain = "10.77.0.0/16", "sea.example"
	a := startServer(t, first)
	cfg := a.joining(t, "b")
	cfg.ServiceCIDR = "10.78.0.0/16"
	given(t, cfg, "service-cidr")
	err := refused(t, cfg)
	for _, want := range []string{"--service-cidr", "10.77.0.0/16", "10.78.0.0/16"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	// Flags that are not given follow the cluster, also at the next start.
	b := startServer(t, a.joining(t, "b"))
	for range 2 {
		if cert := leafNames(t, b.cfg.Path("pki", "apiserver.crt")); !strings.Contains(cert, "kubernetes.default.svc.sea.example") || !strings.Contains(cert, "10.77.0.1") {
			t.Errorf("the certificate is for %s", cert)
		}
		b.end(t)
		b.cfg.Join, b.cfg.TokenFile = "", ""
		b = startServer(t, b.cfg)
	}
}

func TestATokenForServersDoesNotJoinANode(t *testing.T) {
	a := startServer(t, newConfig(t, "a"))
	cfg := newConfig(t, "n")
	cfg.Join, cfg.TokenFile = "https://"+a.cfg.Listen, a.token(t, groupServers)
	_, err := join(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "not for nodes") {
		t.Errorf("got %v", err)
	}
}

// given marks a flag as given on the command line.
func given(t *testing.T, cfg *config.Config, name string) {
	t.Helper()
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	cfg.TakeFlags(flags, name)
	if err := flags.Set(name, flags.Lookup(name).Value.String()); err != nil {
		t.Fatal(err)
	}
	cfg.NoteGiven(flags)
}

// leafNames returns the names and addresses of a certificate.
func leafNames(t *testing.T, path string) string {
	t.Helper()
	certs, err := cert.ParseCertsPEM(read(t, path))
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(certs[0].DNSNames, certs[0].IPAddresses)
}

func urls(t *testing.T, text string) []url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return []url.URL{*u}
}

// startEtcd runs an etcd with its network layer and returns its URL.
func startEtcd(t *testing.T) string {
	t.Helper()
	cfg := embed.NewConfig()
	cfg.Dir, cfg.UnsafeNoFsync = filepath.Join(t.TempDir(), "etcd"), true
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	address := nettest.FreeAddress(t)
	cfg.ListenClientUrls = urls(t, "http://"+address)
	cfg.AdvertiseClientUrls = cfg.ListenClientUrls
	cfg.ListenPeerUrls = urls(t, "http://"+nettest.FreeAddress(t))
	cfg.AdvertisePeerUrls = cfg.ListenPeerUrls
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	e, err := embed.StartEtcd(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(patience):
		t.Fatal("etcd does not become ready")
	}
	return "http://" + address
}

func TestServersOnAnOutsideEtcdShareTheKeys(t *testing.T) {
	etcd := startEtcd(t)
	on := func(c *config.Config) *config.Config { c.StoreEndpoints = []string{etcd}; return c }
	a := startServer(t, on(newConfig(t, "a")))
	a.put(t, "shared")
	if err := refused(t, on(newConfig(t, "b"))); err == nil || !strings.Contains(err.Error(), "other keys") || !strings.Contains(err.Error(), "knarr token create --server") {
		t.Errorf("a server with keys of its own: %v", err)
	}
	if err := refused(t, a.joining(t, "b")); err == nil || !strings.Contains(err.Error(), "outside etcd") {
		t.Errorf("without --store: %v", err)
	}
	b := startServer(t, on(a.joining(t, "b")))
	b.sees(t, "shared")
	b.end(t)
	b.cfg.Join, b.cfg.TokenFile = "", ""
	startServer(t, b.cfg).sees(t, "shared")
	if err := a.remove(t, "b"); err == nil || !strings.Contains(err.Error(), "etcdctl") {
		t.Errorf("a member of an outside etcd: %v", err)
	}
}

func TestTheEncryptionOfTheStoreIsShared(t *testing.T) {
	first := newConfig(t, "a")
	first.APIServer.EncryptionConfig = filepath.Join(t.TempDir(), "encryption.yaml")
	if err := os.WriteFile(first.APIServer.EncryptionConfig, []byte(`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"EncryptionConfiguration","resources":[{"resources":["configmaps","secrets"],"providers":[{"secretbox":{"keys":[{"name":"k","secret":"MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="}]}}]}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	a := startServer(t, first)
	a.put(t, "sealed")
	cfg := a.joining(t, "b")
	cfg.APIServer.EncryptionConfig = filepath.Join(t.TempDir(), "other.yaml")
	if err := os.WriteFile(cfg.APIServer.EncryptionConfig, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := refused(t, cfg); err == nil || !strings.Contains(err.Error(), "--encryption-provider-config") {
		t.Errorf("with another configuration: %v", err)
	}
	b := startServer(t, a.joining(t, "b"))
	b.sees(t, "sealed")
	b.end(t)
	b.cfg.Join, b.cfg.TokenFile = "", ""
	startServer(t, b.cfg).sees(t, "sealed")
}

func TestAStartThatIsInterruptedEndsInTime(t *testing.T) {
	cfg := newConfig(t, "b")
	cfg.Join, cfg.TokenFile = "https://"+nettest.FreeAddress(t), tokenFile(t, "aaaaaa.aaaaaaaaaaaaaaaa."+strings.Repeat("a", 64))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := joinServers(ctx, cfg, nil, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("no error")
	}
}
