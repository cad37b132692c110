package kubelet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	internalapi "k8s.io/cri-api/pkg/apis"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/insight/spans"
	"github.com/knarr-project/knarr/internal/kubelet/settings"
	"github.com/knarr-project/knarr/internal/kubelet/shutdown"
	"github.com/knarr-project/knarr/internal/kubelet/worker"
	"github.com/knarr-project/knarr/internal/trace"
	"github.com/knarr-project/knarr/internal/volume"
)

// Volumes is the interface of the volume manager that the node agent uses.
type Volumes = worker.Volumes

// CSIDrivers uses the CSI drivers of the node. See volume.CSI.
type CSIDrivers interface {
	// RegisterDriver starts to use a driver. socket is the path of its registration socket.
	RegisterDriver(ctx context.Context, name, endpoint, socket string, versions []string) error
	// DeregisterDriver stops to use the driver of a registration socket. If ctx has ended, the node
	// agent stops.
	DeregisterDriver(ctx context.Context, name, socket string)
}

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
	// Settings are the settings with upstream's names. Default: settings.Default().
	Settings *settings.Settings
	// Flagz returns the content of /flagz. If nil, the page does not exist.
	Flagz   func() map[string]string
	Volumes Volumes
	// CSI uses the CSI drivers that register in RootDir/plugins_registry; may be nil.
	CSI CSIDrivers
	// VolumesInUse lists attached volumes that must not be detached; may be nil.
	VolumesInUse func() []string

	// CredentialConfig is the configuration of plugins for images' credentials, CredentialDir the
	// folder of their programs. Both are empty, or none.
	CredentialConfig, CredentialDir string

	// CgroupRoot is the parent cgroup of kubepods; default "/". With NoCgroups the runtime makes
	// the pods' cgroups.
	CgroupRoot string
	NoCgroups  bool

	// Listen is the address of the node's HTTPS API; default ":10250". "-" disables it.
	Listen string
	// TLS serves the node's API and holds the CAs of client certificates (ClientCAs).
	TLS *tls.Config
	// ClientCAs returns the CAs of client certificates if they change while the node works; nil
	// means those of TLS. A change returns another pool.
	ClientCAs func() *x509.CertPool
	// Authenticator and Authorizer protect the node's API. If nil, the API server is asked with
	// TokenReview and SubjectAccessReview.
	Authenticator auth.Authenticator
	Authorizer    auth.Authorizer

	// ClientCertificate returns the certificate for the API server. RenewErrors returns the number
	// of failed renewals of the certificate "node" or "kubelet". Both may be nil.
	ClientCertificate func() *tls.Certificate
	RenewErrors       func(certificate string) int64
	// Server names the API server in metrics; default "in-process".
	Server string

	// NodeIPs are the node's addresses, the primary one first.
	NodeIPs    []string
	NodeLabels map[string]string
	// NodeAnnotations returns further annotations of the Node. May be nil.
	NodeAnnotations func() map[string]string
	// NodeOwned returns an error if the Node object belongs to another machine; Run then returns
	// that error. May be nil.
	NodeOwned     func(*corev1.Node) error
	Unschedulable bool
	// MachineRoot is the folder with the kernel's description of CPUs and NUMA nodes; default "/".
	MachineRoot string
	// Tracer records requests and the work on pods; may be nil.
	Tracer *trace.Tracer
	// Spans keeps what happens on the node without a write, for traces; may be nil.
	Spans *spans.Ring
	// PIDs maps a name ("kubelet", "runtime") to one of our own processes. /stats/summary reports
	// their resource usage.
	PIDs map[string]func() int

	// Logind and Halting tell that the machine goes down; default shutdown.System and
	// shutdown.Halting.
	Logind  func(context.Context) (shutdown.Logind, error)
	Halting func() bool

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
	if c.Server == "" {
		c.Server = "in-process"
	}
	if c.Settings == nil {
		c.Settings = settings.Default()
	}
	if c.CgroupRoot == "" {
		c.CgroupRoot = "/"
	}
	if c.Listen == "" {
		c.Listen = ":10250"
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.MachineRoot == "" {
		c.MachineRoot = "/"
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logind == nil {
		c.Logind = shutdown.System
	}
	if c.Halting == nil {
		c.Halting = shutdown.Halting
	}
	for _, dir := range []string{c.RootDir, c.LogsDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}
