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

// Volumes is the interface of the volume manager that the node agent uses.
type Volumes = worker.Volumes

// SubPaths is an optional interface of Volumes, for mounts of sub paths.
type SubPaths = worker.SubPaths

// MountPoint is the location of one volume on the host.
type MountPoint = volume.MountPoint

// Config configures the node agent. Fields without a default are required.
type Config struct {
	NodeName string
	// RootDir holds the pods' folders, LogsDir the container logs; default RootDir/logs. See
	// package logs.
	RootDir, LogsDir string
	// Client is authenticated as system:node:NAME in the group system:nodes.
	Client client.Interface
	Events client.Recorder

	Runtime internalapi.RuntimeService
	Images  internalapi.ImageManagerService
	// RuntimeEndpoint is only shown in /configz.
	RuntimeEndpoint string
	// Settings returns the content of /flagz. If nil, the page does not exist.
	Settings func() map[string]string
	Volumes  Volumes

	// ClusterDNS lists the name servers of pods. If empty, pods use the host's.
	ClusterDNS    []string
	ClusterDomain string
	// ResolvConf is the host's resolv.conf; default /etc/resolv.conf.
	ResolvConf string

	// CgroupRoot is the parent cgroup of kubepods; default "/". With NoCgroups the runtime makes
	// the pods' cgroups.
	CgroupRoot string
	NoCgroups  bool
	NoCFSQuota bool

	// StaticPodPath is a folder of manifests or a single file, ManifestURL the address of a
	// manifest. "" disables either.
	StaticPodPath string
	ManifestURL   string
	// SourcePeriod is the interval for reading manifests that report no change; default 20 s.
	SourcePeriod time.Duration

	// Listen is the address of the node's HTTPS API; default ":10250". "-" disables it.
	Listen string
	// TLS serves the node's API and holds the CAs of client certificates (ClientCAs).
	TLS *tls.Config
	// Authenticator and Authorizer protect the node's API. If nil, the API server is asked with
	// TokenReview and SubjectAccessReview.
	Authenticator auth.Authenticator
	Authorizer    auth.Authorizer

	MaxPods int // default 110
	// LeaseDuration is the duration of the node's lease in whole seconds; default 40 s. The lease
	// is renewed four times per duration.
	LeaseDuration time.Duration
	// NodeIPs are the node's addresses, the primary one first.
	NodeIPs    []string
	NodeLabels map[string]string
	// NodeAnnotations returns further annotations of the Node. May be nil.
	NodeAnnotations func() map[string]string
	// NodeOwned returns an error if the Node object belongs to another machine; Run then returns
	// that error. May be nil.
	NodeOwned          func(*corev1.Node) error
	RegisterWithTaints []corev1.Taint
	Unschedulable      bool
	// Reserved is kept from pods: allocatable is the machine's capacity minus Reserved.
	Reserved corev1.ResourceList
	// EvictionHard maps a signal to its threshold, in the syntax of upstream's flag:
	// "memory.available" → "100Mi" or "10%". Nil selects upstream's defaults.
	EvictionHard map[string]string
	EvictionSoft map[string]string
	// EvictionSoftGrace is how long a soft threshold must be exceeded before pods are evicted.
	EvictionSoftGrace map[string]time.Duration
	// ImageGCHigh and ImageGCLow are percentages of the image filesystem; default 85 and 80. Above
	// the high one, unused images are removed until the low one is reached.
	ImageGCHigh, ImageGCLow int
	// MaxParallelPulls limits concurrent image pulls; 0 means no limit.
	MaxParallelPulls int
	// LogMaxSize and LogMaxFiles limit each container's log; default 10 MiB and 5.
	LogMaxSize  int64
	LogMaxFiles int
	// LogMaxWorkers logs are rotated at once, default 1. LogMonitorInterval is the time between two
	// looks at their sizes, default 10 s.
	LogMaxWorkers      int
	LogMonitorInterval time.Duration
	// AllowedUnsafeSysctls are patterns of sysctls that pods may set in addition to the safe ones.
	AllowedUnsafeSysctls []string
	SeccompDefault       bool
	// PIDs maps a name ("kubelet", "runtime") to one of our own processes. /stats/summary reports
	// their resource usage.
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
	if c.LogMaxWorkers == 0 {
		c.LogMaxWorkers = 1
	}
	if c.LogMonitorInterval == 0 {
		c.LogMonitorInterval = 10 * time.Second
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
