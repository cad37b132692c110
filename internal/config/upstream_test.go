package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// upstreamFlags returns the flag names in `kube-apiserver --help` of v1.36.3.
func upstreamFlags(t *testing.T) []string {
	t.Helper()
	data, err := os.ReadFile("testdata/kube-apiserver-v1.36-flags.txt")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(data))
}

func TestEveryUpstreamFlagIsAcceptedOrHasAHint(t *testing.T) {
	c := Default()
	flags := flagsOfGroups(&c, Process|Server)
	names := append(upstreamFlags(t), "help") // every command has help
	flags.Bool("help", false, "")
	for _, name := range names {
		_, hinted := hints[name]
		if here := flags.Lookup(name) != nil; here == hinted {
			t.Errorf("--%s: accepted is %v, and so is having a hint", name, here)
		}
	}
	for name, ours := range aliases {
		if !slices.Contains(names, name) || flags.Lookup(ours) == nil || flags.Lookup(name) != flags.Lookup(ours) {
			t.Errorf("--%s is no other name of --%s", name, ours)
		}
	}
	for name := range hints {
		if !slices.Contains(names, name) {
			t.Errorf("there is a hint for --%s, which is no flag of upstream", name)
		}
	}
	for _, only := range fixed {
		if !slices.Contains(names, only.name) {
			t.Errorf("--%s can only have some values, and is no flag of upstream", only.name)
		}
	}
}

// parsed returns the settings after the flags, and validation errors.
func parsed(args ...string) (Config, error) {
	c := Default()
	c.NodeName = "node"
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	c.AddFlags(f, Process|Server)
	if err := f.Parse(args); err != nil {
		return c, Explain(f, err)
	}
	return c, c.Validate()
}

func TestCommandLinesOfInstallersAreAccepted(t *testing.T) {
	for installer, line := range map[string]string{
		"kubeadm": `--advertise-address=192.0.2.10 --allow-privileged=true --authorization-mode=Node,RBAC --client-ca-file=/etc/kubernetes/pki/ca.crt
			--enable-admission-plugins=NodeRestriction --enable-bootstrap-token-auth=true --etcd-cafile=/etc/kubernetes/pki/etcd/ca.crt
			--etcd-certfile=/etc/kubernetes/pki/apiserver-etcd-client.crt --etcd-keyfile=/etc/kubernetes/pki/apiserver-etcd-client.key
			--etcd-servers=https://127.0.0.1:2379 --kubelet-client-certificate=/etc/kubernetes/pki/apiserver-kubelet-client.crt
			--kubelet-client-key=/etc/kubernetes/pki/apiserver-kubelet-client.key --kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname
			--proxy-client-cert-file=/etc/kubernetes/pki/front-proxy-client.crt --proxy-client-key-file=/etc/kubernetes/pki/front-proxy-client.key
			--requestheader-allowed-names=front-proxy-client --requestheader-client-ca-file=/etc/kubernetes/pki/front-proxy-ca.crt
			--requestheader-extra-headers-prefix=X-Remote-Extra- --requestheader-group-headers=X-Remote-Group
			--requestheader-username-headers=X-Remote-User --secure-port=6443 --service-account-issuer=https://kubernetes.default.svc.cluster.local
			--service-account-key-file=/etc/kubernetes/pki/sa.pub --service-account-signing-key-file=/etc/kubernetes/pki/sa.key
			--service-cluster-ip-range=10.96.0.0/12 --tls-cert-file=/etc/kubernetes/pki/apiserver.crt --tls-private-key-file=/etc/kubernetes/pki/apiserver.key`,
		"kind": `--allow-privileged=true --etcd-servers=https://127.0.0.1:2379 --runtime-config= --feature-gates= --secure-port=6443 --service-cluster-ip-range=10.96.0.0/16`,
		"kubespray": `--allow-privileged=true --anonymous-auth=True --bind-address=:: --default-not-ready-toleration-seconds=300 --default-unreachable-toleration-seconds=300
			--enable-aggregator-routing=False --endpoint-reconciler-type=lease --etcd-compaction-interval=5m0s --etcd-servers=https://192.0.2.1:2379,https://192.0.2.2:2379
			--event-ttl=1h0m0s --kubelet-preferred-address-types=InternalDNS,InternalIP,Hostname,ExternalDNS,ExternalIP --profiling=False
			--request-timeout=1m0s --service-account-lookup=True --service-cluster-ip-range=10.233.0.0/18 --service-node-port-range=30000-32767 --storage-backend=etcd3`,
		"k3s without its tunnel": `--advertise-address=192.0.2.10 --allow-privileged=true --anonymous-auth=false --api-audiences=https://kubernetes.default.svc.cluster.local,k3s
			--authorization-mode=Node,RBAC --bind-address=127.0.0.1 --cert-dir=/var/lib/rancher/k3s/server/tls/temporary-certs --enable-aggregator-routing=true
			--enable-bootstrap-token-auth=true --etcd-servers=unix://kine.sock --kubelet-certificate-authority=server-ca.crt --kubelet-client-certificate=c.crt
			--kubelet-client-key=c.key --kubelet-preferred-address-types=InternalIP,ExternalIP,Hostname --profiling=false --proxy-client-cert-file=p.crt
			--proxy-client-key-file=p.key --secure-port=6444 --service-cluster-ip-range=10.43.0.0/16 --service-node-port-range=30000-32767 --storage-backend=etcd3
			--tls-cert-file=s.crt --tls-private-key-file=s.key --tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256`,
		"with all fixed values": `--authentication-token-webhook-version=v1 --authorization-webhook-version=v1 --livez-grace-period=0 --endpoint-reconciler-type=lease --logging-format=text
			--permit-address-sharing --watch-cache --storage-media-type=application/vnd.kubernetes.protobuf --shutdown-watch-termination-grace-period=0s -v=2`,
	} {
		t.Run(installer, func(t *testing.T) {
			if _, err := parsed(strings.Fields(line)...); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestUpstreamFlagsSetTheSameSettings(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		got  func(*Config) any
		want any
	}{
		"a port":                       {[]string{"--secure-port=7443"}, func(c *Config) any { return c.Listen }, "0.0.0.0:7443"},
		"an address":                   {[]string{"--bind-address=127.0.0.1"}, func(c *Config) any { return c.Listen }, "127.0.0.1:6443"},
		"an address of IPv6, a port":   {[]string{"--bind-address=::1", "--secure-port=1"}, func(c *Config) any { return c.Listen }, "[::1]:1"},
		"no address":                   {[]string{"--bind-address="}, func(c *Config) any { return c.Listen }, "0.0.0.0:6443"},
		"a range of Services":          {[]string{"--service-cluster-ip-range=10.96.0.0/12"}, func(c *Config) any { return c.ServiceCIDR }, "10.96.0.0/12"},
		"the smallest range":           {[]string{"--service-cluster-ip-range=10.96.0.8/29"}, func(c *Config) any { return c.ServiceIP(1).String() }, "10.96.0.9"},
		"two families of Services":     {[]string{"--service-cluster-ip-range=fd00::/125,10.96.0.0/16"}, func(c *Config) any { return fmt.Sprint(c.ServiceRanges()) }, "[fd00::/125 10.96.0.0/16]"},
		"a range of node ports":        {[]string{"--service-node-port-range=1-2"}, func(c *Config) any { return c.NodePortRange }, "1-2"},
		"several members of an etcd":   {[]string{"--etcd-servers=a,b"}, func(c *Config) any { return strings.Join(c.StoreEndpoints, " ") }, "a b"},
		"an interval of compaction":    {[]string{"--etcd-compaction-interval=0"}, func(c *Config) any { return c.CompactionInterval.Duration }, time.Duration(0)},
		"no bootstrap tokens":          {[]string{"--enable-bootstrap-token-auth=false"}, func(c *Config) any { return c.APIServer.Authentication.BootstrapTokens }, false},
		"no privileged containers":     {[]string{"--allow-privileged=false"}, func(c *Config) any { return c.APIServer.AllowPrivileged }, false},
		"little of a log":              {[]string{"-v", "2"}, func(c *Config) any { return c.LogLevel }, "info"},
		"much of a log":                {[]string{"--v=4"}, func(c *Config) any { return c.LogLevel }, "debug"},
		"leases of half a minute":      {[]string{"--lease-reuse-duration-seconds=30"}, func(c *Config) any { return c.APIServer.LeaseReuse }, 30},
		"ways to agree on a key":       {[]string{"--tls-curve-preferences=23,4588"}, func(c *Config) any { return len(c.APIServer.Curves()) }, 2},
		"watches that end slowly":      {[]string{"--shutdown-watch-termination-grace-period=30s"}, func(c *Config) any { return c.APIServer.ShutdownWatches.Duration }, 30 * time.Second},
		"alive from the start":         {[]string{"--livez-grace-period=1m"}, func(c *Config) any { return c.APIServer.LivezGrace.Duration }, time.Minute},
		"endpoints of others":          {[]string{"--endpoint-reconciler-type=none"}, func(c *Config) any { return c.APIServer.KeepsEndpoints() }, false},
		"policies beside the file":     {[]string{"--authorization-config=a", "--authorization-policy-file=b"}, func(c *Config) any { return c.APIServer.AuthorizationPolicy }, "b"},
		"an order of nodes' addresses": {[]string{"--kubelet-preferred-address-types=Hostname,ExternalIP"}, func(c *Config) any { return string(c.APIServer.Kubelets.Order()[1]) }, "ExternalIP"},
	} {
		t.Run(name, func(t *testing.T) {
			c, err := parsed(tc.args...)
			if got := tc.got(&c); err != nil || got != tc.want {
				t.Errorf("got %v, %v, want %v", got, err, tc.want)
			}
		})
	}
}

func TestAnAuthorizationFileExcludesAuthorizationFlags(t *testing.T) {
	for _, flag := range []string{
		"--authorization-mode=RBAC", "--authorization-mode=", "--authorization-webhook-config-file=x", "--authorization-webhook-config-file=", "--authorization-webhook-version=v1",
		"--authorization-webhook-cache-authorized-ttl=5m", "--authorization-webhook-cache-unauthorized-ttl=30s", "--authorization-webhook-cache-unauthorized-ttl=1s",
	} {
		if _, err := parsed("--authorization-config=a", flag); err == nil || !strings.Contains(err.Error(), `authorization-config: "a" is not usable: no --authorization-mode or --authorization-webhook-* beside it`) {
			t.Errorf("beside %s: %v", flag, err)
		}
	}
	if _, err := parsed("--authorization-config=a"); err != nil {
		t.Error(err)
	}
	if _, err := parsed("--authorization-webhook-version=v1"); err != nil {
		t.Error(err)
	}
}

func TestErrorsForUnsupportedFlagsNameAlternatives(t *testing.T) {
	for name, tc := range map[string]struct{ args, want string }{
		"a flag of upstream":              {"--show-hidden-metrics-for-version=x", "unknown flag --show-hidden-metrics-for-version: a flag of kube-apiserver that is not here: no metrics are hidden"},
		"an unknown flag":                 {"--nope", "unknown flag --nope"},
		"a value that is not so":          {"--watch-cache=false", "it can only be true: reads and watches are served from memory"},
		"a flag alone that is not so":     {"--disable-http2-serving", "it can only be false"},
		"a version of webhooks":           {"--authorization-webhook-version=v1beta1", "it can only be v1"},
		"an invalid time":                 {"--livez-grace-period=x", `--livez-grace-period: "x" is not usable: a duration with its unit`},
		"a time below 0":                  {"--shutdown-watch-termination-grace-period=-1s", "0 or more"},
		"a keeper of endpoints":           {"--endpoint-reconciler-type=master-count", "lease or none"},
		"two ranges of one family":        {"--service-cluster-ip-range=10.96.0.0/16,10.97.0.0/16", "one of each family"},
		"three ranges of Services":        {"--service-cluster-ip-range=10.96.0.0/16,fd00::/108,fd01::/108", "one of each family"},
		"a range of few Services":         {"--service-cluster-ip-range=10.96.0.0/30", "of 8 addresses at least"},
		"a range of few Services of IPv6": {"--service-cluster-ip-range=fd00::/126", "of 8 addresses at least"},
		"a port of none":                  {"--secure-port=0", "a port, between 1 and 65535"},
		"an address that is a name":       {"--bind-address=localhost", "an IP address"},
		"an invalid level":                {"-v=x", "a number"},
		"a folder without certificates":   {"--cert-dir=/x", "tls-cert-file and tls-private-key-file beside it"},
		"half a pair for kubelets":        {"--kubelet-client-key=x", "given together with kubelet-client-key"},
		"half a pair for extensions":      {"--proxy-client-cert-file=x", "given together with proxy-client-key-file"},
		"addresses that nodes have not":   {"--kubelet-preferred-address-types=LegacyHostIP", "out of Hostname"},
		"leases for no time":              {"--lease-reuse-duration-seconds=0", "1 or more"},
		"a way to agree that is not Go's": {"--tls-curve-preferences=1", "29 (X25519)"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := parsed(tc.args); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
	if err := errors.New("other"); Explain(pflag.NewFlagSet("", 0), err) != err {
		t.Error("other errors are changed")
	}
}

// An API server alone does not use pods' addresses, so the unused default must not conflict with
// the Service range.
func TestAnAPIServerAloneMayHaveAnyServiceRange(t *testing.T) {
	const pods = "--service-cluster-ip-range=10.42.0.0/16"
	if _, err := parsed(pods); err != nil {
		t.Error(err)
	}
	c := Default()
	c.NodeName = "node"
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	c.AddFlags(f, Process|Server|Controlling)
	if err := f.Parse([]string{pods}); err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "does not overlap pod-cidr") {
		t.Errorf("with controllers: %v", err)
	}
}

func TestUpstreamsFlagsWinOverTheFileToo(t *testing.T) {
	c := Default()
	flags := flagsOfGroups(&c, Process|Server)
	if err := flags.Parse([]string{"--secure-port=7443", "--etcd-servers=https://a:2379", "-v=4", "--watch-cache"}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "config")
	if err := os.WriteFile(path, []byte("listen: 127.0.0.1:1\nstore: [x]\nlog-level: error\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := ReadFile(flags, path); err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:7443" || !slices.Equal(c.StoreEndpoints, []string{"https://a:2379"}) || c.LogLevel != "debug" {
		t.Errorf("got %s, %v, %s", c.Listen, c.StoreEndpoints, c.LogLevel)
	}
}
