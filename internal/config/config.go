// Package config holds the configuration of a knarr process in one struct: defaults, flags, file
// and validation. It imports no other package of knarr.
//
// Words. A topic groups settings in help and reference. A group is the set of settings of one part
// of knarr, such as the node.
package config

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Config is the configuration of a process. The zero value is not usable: start from Default.
type Config struct {
	// File is the YAML file with settings that the command line does not give; "" means no file
	// (ReadFile).
	File string
	// DataDir holds everything that must survive: the store, keys, images, pods' folders. Default
	// /var/lib/knarr.
	DataDir string
	// RunDir holds sockets and pid files. Default /run/knarr/default, or another folder below
	// /run/knarr for another data folder.
	RunDir string
	// KubeletDir is the node agent's folder with pods, drivers and plugins. Default:
	// /var/lib/kubelet for the cluster in /var/lib/knarr if it is free, else DataDir/kubelet.
	KubeletDir string
	// Listen is the API server's address, host:port. Default 0.0.0.0:6443.
	Listen string
	// AdvertiseAddress is the address at which other machines reach this one. Default: that of the
	// default route's interface, else the first global address, else 127.0.0.1.
	AdvertiseAddress string
	// TLSNames are further DNS names and addresses of the API server's certificate.
	TLSNames []string
	// NodeName is the node's name. Default: the host's name in lower case.
	NodeName string
	// KubeletConfig is a file with the node's settings: a KubeletConfiguration of
	// kubelet.config.k8s.io/v1beta1. KubeletConfigDir is a folder of *.conf files over it.
	KubeletConfig    string
	KubeletConfigDir string
	// SchedulerConfig is a file with the scheduler's settings: a KubeSchedulerConfiguration of
	// kubescheduler.config.k8s.io/v1.
	SchedulerConfig string
	// CredentialConfig is the file or the folder of a CredentialProviderConfig, CredentialDir the
	// folder of its programs. Both are given, or none.
	CredentialConfig, CredentialDir string
	// RegisterWithTaints are taints of a new Node, as KEY=VALUE:EFFECT.
	RegisterWithTaints []string
	// KubeReserved and SystemReserved are resources that pods do not get, such as memory=512Mi.
	KubeReserved, SystemReserved map[string]string
	// NodeIP is the node's address in the cluster, its InternalIP. Default: AdvertiseAddress.
	NodeIP string
	// NodeLabels are further labels of the node object.
	NodeLabels map[string]string
	// PeerListen is HOST:PORT at which other servers reach the embedded store. It is opened once
	// there are any. Default 0.0.0.0:2380.
	PeerListen string
	// Join has the URLs of servers to join, with commas between (JoinURLs). Token proves the right
	// to join (knarr token create). TokenFile is a file with the token instead, "-" the standard
	// input (JoinToken).
	Join      string
	Token     string
	TokenFile string
	// Kubeconfig is the kubeconfig of a component that runs alone.
	Kubeconfig string
	// NetworkKubeconfig is the kubeconfig of the pod network of a node agent that runs alone; it
	// must allow reading all nodes. Default: Kubeconfig.
	NetworkKubeconfig string

	// PodCIDR is the range from which nodes get their pod ranges. Default 10.42.0.0/16, a /24 per
	// node.
	PodCIDR string
	// ServiceCIDR is the range of Services' cluster IPs. Default 10.43.0.0/16; the tenth address is
	// the DNS Service's. An API server alone may have one range per family, separated by a comma.
	// Services that name no family use the first one's.
	ServiceCIDR string
	// ClusterDomain is the suffix of every name of the cluster. Default cluster.local.
	ClusterDomain string
	// NodePortRange is the range of Services' node ports. Default 30000-32767.
	NodePortRange string
	// LoadBalancerPool lists where Services of type LoadBalancer get addresses: ranges, or the
	// words nodes, resources and none. Default nodes.
	LoadBalancerPool []string

	// StoreEndpoints are the URLs of an outside etcd that replaces the embedded one.
	StoreEndpoints []string
	StoreCA        string
	StoreCert      string
	StoreKey       string
	// StoreOverrides are kinds with an etcd of their own, as GROUP/RESOURCE#URL;URL. The
	// connections use the same certificates.
	StoreOverrides []string
	// StorePrefix is the key in the store below which all objects are. Default /registry.
	StorePrefix string
	// StoreQuota is the most bytes that the data may use in the embedded store, as a quantity
	// between 32Mi and 64Gi. Default 8Gi.
	StoreQuota string
	// NodeMonitorGrace is how long a node may be silent before it is not ready and its pods are
	// replaced. Default 40s.
	NodeMonitorGrace metav1.Duration

	// LegacyTokenPeriod applies to generated tokens in Secrets. A token unused for this time
	// becomes invalid; after the same time again it is deleted. Default 8760h.
	LegacyTokenPeriod metav1.Duration

	// CompactionInterval is the interval at which the API server compacts old revisions. Default
	// 5m0s; 0 disables it.
	CompactionInterval metav1.Duration

	// RuntimeEndpoint is the endpoint (unix:///…) of another CRI runtime that replaces the included
	// containerd.
	RuntimeEndpoint string
	// RegistryHosts is a folder with a hosts.toml per registry, in containerd's format. Default
	// DIR/registries.
	RegistryHosts string
	// CgroupRoot is the parent of pods' cgroups. Default /knarr, or a sibling of it for another
	// data folder.
	CgroupRoot string
	// KubeletListen is the address of the node's own HTTPS API. Default 0.0.0.0:10250.
	KubeletListen string
	// MaxPods is the maximum number of pods on this node. Default 110.
	MaxPods int
	// EvictionHard are the thresholds below which the node evicts pods, as SIGNAL<QUANTITY like in
	// upstream's kubelet. If set, they replace all defaults: memory.available<100Mi,
	// nodefs.available<10%, imagefs.available<15%, inodes<5%.
	EvictionHard []string
	// ImageGCHigh and ImageGCLow are percentages of the image file system. Above the first, unused
	// images are removed until the second is reached. Defaults 85 and 80; 100 keeps all images.
	ImageGCHigh, ImageGCLow int
	// LocalStoragePaths are this node's folders for volumes of the provisioner local.knarr.dev, as
	// PATH or NAME=PATH. PATH alone is the folder "default". Default DIR/volumes.
	LocalStoragePaths []string
	// LocalStorageReserved is the percentage of these folders' file systems that volumes leave
	// free. Default 10.
	LocalStorageReserved int
	// LocalStorage provisions volumes on the nodes' disks, and makes a default StorageClass in a
	// new cluster. Default true.
	LocalStorage bool
	// Architecture serves the kinds Component and System, and compares them with the cluster.
	// Default true.
	Architecture bool
	// NodeLeaseDuration is the duration of this node's lease, which is renewed four times as often.
	// Default 40s, whole seconds.
	NodeLeaseDuration metav1.Duration
	// StaticPods is a folder of manifests that this node runs. Default DIR/manifests.
	StaticPods string
	// ManifestURL is the URL of a manifest that this node fetches and runs.
	ManifestURL string

	// AdmissionConfig is a file of settings for admission plugins (AdmissionConfiguration of
	// apiserver.config.k8s.io/v1).
	AdmissionConfig string
	// EnableAdmission names admission plugins to enable in addition to the default ones.
	// DisableAdmission names those to disable.
	EnableAdmission  []string
	DisableAdmission []string
	// Snapshots configures scheduled snapshots of the embedded store.
	Snapshots Snapshots
	// APIServer holds the API server's settings with upstream's names.
	APIServer APIServer
	// Controllers holds the settings of controllers that run alone.
	Controllers Controllers
	// Observe is the address for health and metrics of controllers or a scheduler that run alone.
	Observe Observe
	// LogLevel is debug, info, warn or error. Default warn for up, info for the rest.
	LogLevel string

	// readToken is the content of TokenFile, once it has been read.
	readToken string
	// dnsAddress is the address of the cluster's DNS server, if a server has told it.
	dnsAddress string
	// given holds the names of flags that are given, or set in a file.
	given map[string]bool

	// noPods means that the process does not use pods' addresses.
	noPods bool
}

// Default is the configuration before file and flags.
func Default() Config {
	return Config{
		DataDir:            "/var/lib/knarr",
		Listen:             "0.0.0.0:6443",
		PeerListen:         "0.0.0.0:2380",
		PodCIDR:            "10.42.0.0/16",
		ServiceCIDR:        "10.43.0.0/16",
		ClusterDomain:      "cluster.local",
		NodePortRange:      "30000-32767",
		LoadBalancerPool:   []string{PoolNodes},
		StorePrefix:        "/registry",
		StoreQuota:         "8Gi",
		NodeMonitorGrace:   metav1.Duration{Duration: 40 * time.Second},
		LegacyTokenPeriod:  metav1.Duration{Duration: 365 * 24 * time.Hour},
		CompactionInterval: metav1.Duration{Duration: 5 * time.Minute},
		KubeletListen:      "0.0.0.0:10250",
		MaxPods:            110,
		ImageGCHigh:        85,
		ImageGCLow:         80,
		LocalStorage:       true,
		Architecture:       true,

		LocalStorageReserved: 10,
		NodeLeaseDuration:    metav1.Duration{Duration: 40 * time.Second},
		Snapshots:            defaultSnapshots(),
		APIServer:            defaultAPIServer(),
		Controllers:          defaultControllers(),
		LogLevel:             "warn",
	}
}

// maxKubeletDir leaves room for the names of plugins' sockets.
const maxKubeletDir = 60

// maxRunDir leaves room for the names of containerd's sockets.
const maxRunDir = 60

var dnsSubdomain = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)

// Complete fills in defaults that depend on the machine and on other fields.
func (c *Config) Complete() error {
	if c.NodeName == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("config: node name: %w", err)
		}
		c.NodeName = strings.ToLower(host)
	}
	var err error
	if c.DataDir, err = filepath.Abs(c.DataDir); err != nil {
		return fmt.Errorf("config: data-dir: %w", err)
	}
	if c.Join != "" {
		if c.Join, err = completeJoin(c.Join); err != nil {
			return err
		}
	}
	for _, path := range []*string{&c.KubeletConfig, &c.KubeletConfigDir, &c.SchedulerConfig, &c.CredentialConfig, &c.CredentialDir, &c.TokenFile, &c.Snapshots.Dir} {
		if *path == "" || path == &c.Snapshots.Dir && *path == folderNone || path == &c.TokenFile && *path == "-" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return fmt.Errorf("config: %s: %w", *path, err)
		}
	}
	if c.StaticPods == "" {
		c.StaticPods = filepath.Join(c.DataDir, "manifests")
	}
	if c.AdvertiseAddress == "" {
		c.AdvertiseAddress = advertiseAddress()
	}
	if isUnspecified(c.NodeIP) {
		c.NodeIP = "" // upstream's way to ask for the default
	}
	return c.Validate()
}

// Validate returns an error for each invalid field, with the value and the allowed values.
func (c *Config) Validate() error {
	var errs []error
	bad := func(field, value, allowed string) {
		errs = append(errs, fmt.Errorf("%s: %q is not usable: %s", field, value, allowed))
	}
	for field, value := range map[string]string{"listen": c.Listen, "kubelet-listen": c.KubeletListen} {
		if _, err := netip.ParseAddrPort(value); err != nil {
			bad(field, value, "an address and a port, such as 0.0.0.0:6443")
		}
	}
	if at, err := netip.ParseAddrPort(c.PeerListen); err != nil || at.Port() == 0 {
		bad("peer-listen", c.PeerListen, "an address and a port, such as 0.0.0.0:2380")
	}
	if c.Token != "" && c.TokenFile != "" {
		bad("token-file", c.TokenFile, "only one of --token and --token-file")
	}
	if len(c.NodeName) > 253 || !dnsSubdomain.MatchString(c.NodeName) {
		bad("node-name", c.NodeName, "lower-case letters, digits, '-' and '.', at most 253")
	}
	pod, err := netip.ParsePrefix(c.PodCIDR)
	if err != nil || pod.Bits() > 24 && pod.Addr().Is4() {
		bad("pod-cidr", c.PodCIDR, "a range such as 10.42.0.0/16, with room for a /24 per node")
	}
	services, allowed := c.serviceRanges()
	switch {
	case services == nil:
		bad("service-cidr", c.ServiceCIDR, allowed)
	case !c.noPods && pod.IsValid() && pod.Overlaps(services[0]):
		bad("service-cidr", c.ServiceCIDR, "a range that does not overlap pod-cidr "+c.PodCIDR)
	}
	if !dnsSubdomain.MatchString(c.ClusterDomain) {
		bad("cluster-domain", c.ClusterDomain, "a DNS name such as cluster.local")
	}
	if _, _, err := c.NodePorts(); err != nil {
		bad("node-port-range", c.NodePortRange, "two ports and a dash, such as 30000-32767")
	}
	if c.AdvertiseAddress != "" {
		if _, err := netip.ParseAddr(c.AdvertiseAddress); err != nil {
			bad("advertise-address", c.AdvertiseAddress, "an IP address")
		}
	}
	if c.NodeIP != "" {
		if ip, err := netip.ParseAddr(c.NodeIP); err != nil || ip.IsMulticast() || ip.IsUnspecified() {
			bad("node-ip", c.NodeIP, "one unicast address of this machine, such as 10.0.0.5")
		}
	}
	isURL := func(text string) bool { u, err := url.Parse(text); return err == nil && u.Host != "" }
	if c.ManifestURL != "" && !isURL(c.ManifestURL) {
		bad("manifest-url", c.ManifestURL, "a URL such as https://host:6443")
	}
	for _, one := range JoinURLs(c.Join) {
		if !isURL(one) {
			bad("join", c.Join, "a URL such as https://host:6443, or several with commas between")
			break
		}
	}
	if c.StoreRoot() == "" {
		bad("etcd-prefix", c.StorePrefix, "a path such as /registry; no other cluster's prefix may be below it")
	}
	c.validateOverrides(bad)
	if c.NodeMonitorGrace.Duration <= 0 {
		bad("node-monitor-grace-period", c.NodeMonitorGrace.Duration.String(), "more than 0, such as 40s")
	}
	if c.LegacyTokenPeriod.Duration <= 0 {
		bad("legacy-service-account-token-clean-up-period", c.LegacyTokenPeriod.Duration.String(), "more than 0, such as 8760h")
	}
	if c.NodeLeaseDuration.Duration < time.Second || c.NodeLeaseDuration.Duration%time.Second != 0 {
		bad("node-lease-duration", c.NodeLeaseDuration.Duration.String(), "whole seconds, such as 40s")
	}
	c.validatePools(bad)
	c.Snapshots.validate(bad)
	c.APIServer.validate(bad)
	c.Controllers.validate(bad)
	c.Observe.validate(bad)
	if c.MaxPods < 1 {
		bad("max-pods", fmt.Sprint(c.MaxPods), "1 or more")
	}
	c.validateDisk(bad)
	c.validateStoreQuota(bad)
	c.validateLocalStorage(bad)
	switch c.LogLevel {
	case "debug", "info", "warn", "error":
	default:
		bad("log-level", c.LogLevel, "debug, info, warn or error")
	}
	if c.KubeletDir != "" && (!filepath.IsAbs(c.KubeletDir) || filepath.Clean(c.KubeletDir) != c.KubeletDir || len(c.KubeletDir) > maxKubeletDir) {
		bad("kubelet-dir", c.KubeletDir, fmt.Sprintf("an absolute path without \"..\" of at most %d characters", maxKubeletDir))
	}
	if len(c.RunDir) > maxRunDir {
		bad("run-dir", c.RunDir, fmt.Sprintf("at most %d characters: the runtime's sockets below it have a limit of 107", maxRunDir))
	}
	return errors.Join(errs...)
}

// NodePorts returns the first and last port of the range of node ports.
func (c *Config) NodePorts() (first, last int, err error) {
	if _, err := fmt.Sscanf(c.NodePortRange, "%d-%d", &first, &last); err != nil || first < 1 || last > 65535 || first > last {
		return 0, 0, fmt.Errorf("node-port-range: %q is not a range of ports", c.NodePortRange)
	}
	return first, last, nil
}

// StoreRoot is the prefix of all keys in the store: an absolute path without a trailing slash.
func (c *Config) StoreRoot() string { return strings.TrimSuffix(path.Join("/", c.StorePrefix), "/") }

// SharesStore reports whether the store may contain other data than this cluster's.
func (c *Config) SharesStore() bool { return len(c.StoreEndpoints) > 0 }

// ServiceRanges returns the ranges of Services' cluster IPs: one, or one per family.
func (c *Config) ServiceRanges() []netip.Prefix {
	ranges, _ := c.serviceRanges()
	return ranges
}

// serviceRanges parses the ranges. If they are invalid, allowed describes valid ones. A process
// with pods needs the tenth address for the DNS Service, and supports one family.
func (c *Config) serviceRanges() (ranges []netip.Prefix, allowed string) {
	most, bits, allowed := 1, 4, "a range such as 10.43.0.0/16, of 16 addresses at least"
	if c.noPods {
		most, bits, allowed = 2, 3, "a range such as 10.43.0.0/16, of 8 addresses at least, or one of each family, such as 10.43.0.0/16,fd00:43::/108"
	}
	for _, text := range strings.Split(c.ServiceCIDR, ",") {
		p, err := netip.ParsePrefix(text)
		if err != nil || p.Addr().BitLen()-p.Bits() < bits {
			return nil, allowed
		}
		ranges = append(ranges, p)
	}
	if len(ranges) > most || len(ranges) == 2 && ranges[0].Addr().Is4() == ranges[1].Addr().Is4() {
		return nil, allowed
	}
	return ranges, allowed
}

// ServiceIP returns the nth address of the first Service range: 1 is the API server's, 10 the DNS
// Service's.
func (c *Config) ServiceIP(n int) netip.Addr {
	ranges := c.ServiceRanges()
	if len(ranges) == 0 {
		return netip.Addr{}
	}
	addr := ranges[0].Masked().Addr()
	for range n {
		addr = addr.Next()
	}
	return addr
}

// DNSAddress is the address of the cluster's DNS server: by default the Service range's tenth.
func (c *Config) DNSAddress() string {
	if c.dnsAddress != "" {
		return c.dnsAddress
	}
	return c.ServiceIP(10).String()
}

// SetDNSAddress sets the address that the cluster's server tells.
func (c *Config) SetDNSAddress(address string) { c.dnsAddress = address }

// Path joins a path below the data folder.
func (c *Config) Path(elem ...string) string {
	return filepath.Join(append([]string{c.DataDir}, elem...)...)
}

// AdminKubeconfig is the file that `knarr kubectl` uses by default.
func (c *Config) AdminKubeconfig() string { return c.Path("kubeconfig") }
