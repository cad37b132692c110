package kubelet

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	internalapi "k8s.io/cri-api/pkg/apis"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/kubelet/worker"
	"github.com/knarr-project/knarr/internal/volume"
)

// Volumes is the pod volume manager as the node agent uses it.
type Volumes = worker.Volumes

// SubPaths is what Volumes also implement if they can mount sub paths.
type SubPaths = worker.SubPaths

// MountPoint is where one volume lies on the host.
type MountPoint = volume.MountPoint

// Config is what the node agent works with. Fields without a word about defaults are required.
type Config struct {
	NodeName string
	// RootDir holds the pods' folders. LogsDir holds container logs; default RootDir/logs.
	RootDir, LogsDir string
	// Client has the identity system:node:NAME in the group system:nodes.
	Client client.Interface
	Events client.Recorder

	Runtime internalapi.RuntimeService
	Images  internalapi.ImageManagerService
	// RuntimeEndpoint is told in /configz only.
	RuntimeEndpoint string
	// Settings are what /flagz tells; nil: there is no such page.
	Settings func() map[string]string
	Volumes  Volumes

	// ClusterDNS are the name servers of pods; none makes them use the host's.
	ClusterDNS    []string
	ClusterDomain string
	// ResolvConf is the host's resolv.conf; default /etc/resolv.conf.
	ResolvConf string

	// CgroupRoot is the cgroup that kubepods lies in; default "/". NoCgroups leaves pods' cgroups to the runtime.
	CgroupRoot string
	NoCgroups  bool
	NoCFSQuota bool

	// StaticPodPath is a folder (or a file) of manifests, ManifestURL a manifest's address; "" is none.
	StaticPodPath string
	ManifestURL   string
	// SourcePeriod is how often manifests are read again without news; default 20 s.
	SourcePeriod time.Duration

	// Listen is the address of the node's HTTPS API; default ":10250"; "-" is none.
	Listen string
	// TLS serves the node's API, and holds the CAs of client certificates (ClientCAs).
	TLS *tls.Config
	// Authenticator and Authorizer protect it; nil ones ask the API server (TokenReview, SubjectAccessReview).
	Authenticator auth.Authenticator
	Authorizer    auth.Authorizer

	MaxPods int // default 110
	// LeaseDuration is how long the node's lease lasts, in whole seconds; it is renewed four times as often. Default 40 s.
	LeaseDuration time.Duration
	// NodeIPs are the node's addresses, the primary one first.
	NodeIPs    []string
	NodeLabels map[string]string
	// NodeAnnotations are further annotations of the Node; may be nil.
	NodeAnnotations func() map[string]string
	// NodeOwned says why a Node of the name is another machine's: Run ends with that error. May be
	// nil.
	NodeOwned          func(*corev1.Node) error
	RegisterWithTaints []corev1.Taint
	Unschedulable      bool
	// Reserved is kept from pods: the machine's capacity less Reserved is allocatable.
	Reserved corev1.ResourceList
	// EvictionHard are thresholds by signal, as upstream's flag: "memory.available" → "100Mi" or "10%". Nil is upstream's default.
	EvictionHard map[string]string
	EvictionSoft map[string]string
	// EvictionSoftGrace is how long a soft threshold has to be passed.
	EvictionSoftGrace map[string]time.Duration
	// ImageGCHigh and ImageGCLow are percentages of the image filesystem: above the high one images that nothing uses are removed until the
	// low one is reached. Default 85 and 80.
	ImageGCHigh, ImageGCLow int
	// MaxParallelPulls limits image pulls at a time; 0 is no limit.
	MaxParallelPulls int
	// LogMaxSize and LogMaxFiles limit each container's log; default 10 MiB and 5.
	LogMaxSize  int64
	LogMaxFiles int
	// AllowedUnsafeSysctls are patterns of sysctls that pods may set besides the safe ones.
	AllowedUnsafeSysctls []string
	SeccompDefault       bool
	// PIDs are processes of ours whose use of the machine /stats/summary tells by name ("kubelet", "runtime").
	PIDs map[string]func() int

	Logger *slog.Logger
	// Now is the clock; default time.Now.
	Now func() time.Time
}

func (c *Config) complete() error {
	switch {
	case c.NodeName == "":
		return errors.New("kubelet: NodeName is empty")
	case c.RootDir == "":
		return errors.New("kubelet: RootDir is empty")
	case c.Client == nil || c.Runtime == nil || c.Images == nil || c.Volumes == nil || c.Events == nil:
		return errors.New("kubelet: Client, Events, Runtime, Images and Volumes are required")
	}
	if c.LogsDir == "" {
		c.LogsDir = filepath.Join(c.RootDir, "logs")
	}
	if c.ResolvConf == "" {
		c.ResolvConf = "/etc/resolv.conf"
	}
	if c.CgroupRoot == "" {
		c.CgroupRoot = "/"
	}
	if c.SourcePeriod == 0 {
		c.SourcePeriod = 20 * time.Second
	}
	if c.Listen == "" {
		c.Listen = ":10250"
	}
	if c.MaxPods == 0 {
		c.MaxPods = 110
	}
	if c.LeaseDuration == 0 {
		c.LeaseDuration = 40 * time.Second
	}
	if c.ImageGCHigh == 0 {
		c.ImageGCHigh = 85
	}
	if c.ImageGCLow == 0 {
		c.ImageGCLow = 80
	}
	if c.LogMaxSize == 0 {
		c.LogMaxSize = 10 << 20
	}
	if c.LogMaxFiles == 0 {
		c.LogMaxFiles = 5
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	for _, dir := range []string{c.RootDir, c.LogsDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}
