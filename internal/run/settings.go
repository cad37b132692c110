package run

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/kubelet/logs"
	"github.com/knarr-project/knarr/internal/kubelet/settings"
	"github.com/knarr-project/knarr/internal/zpages"
)

// debugFrom is the lowest logging.verbosity that enables debug logs.
const debugFrom = 4

// readSettings reads the node's settings. A flag wins over the file; the file wins over knarr's
// defaults.
func (p *Params) readSettings() error {
	c := p.Config
	s, err := settings.Read(c.KubeletConfig, c.KubeletConfigDir)
	if err != nil {
		return err
	}
	if err := reconcileSettings(c, s); err != nil {
		return err
	}
	if s.Logging.Verbosity >= debugFrom && !c.IsGiven("log-level") {
		zpages.LogLevel.Set(slog.LevelDebug)
	}
	if s.EnableContentionProfiling && *s.EnableProfilingHandler {
		runtime.SetBlockProfileRate(1)
	}
	p.nodeSettings = s
	return s.Validate()
}

// reconcileSettings makes both configurations agree on the settings that both have.
func reconcileSettings(c *config.Config, s *settings.Settings) error {
	if err := reconcileListen(c, s); err != nil {
		return err
	}
	high, low := int(*s.ImageGCHighThresholdPercent), int(*s.ImageGCLowThresholdPercent)
	maxPods, lease := int(s.MaxPods), time.Duration(s.NodeLeaseDurationSeconds)*time.Second
	agree(c, s, "max-pods", "maxPods", &c.MaxPods, &maxPods)
	agree(c, s, "image-gc-high-threshold", "imageGCHighThresholdPercent", &c.ImageGCHigh, &high)
	agree(c, s, "image-gc-low-threshold", "imageGCLowThresholdPercent", &c.ImageGCLow, &low)
	agree(c, s, "node-lease-duration", "nodeLeaseDurationSeconds", &c.NodeLeaseDuration.Duration, &lease)
	agree(c, s, "static-pods", "staticPodPath", &c.StaticPods, &s.StaticPodPath)
	agree(c, s, "manifest-url", "staticPodURL", &c.ManifestURL, &s.StaticPodURL)
	agree(c, s, "runtime-endpoint", "containerRuntimeEndpoint", &c.RuntimeEndpoint, &s.ContainerRuntimeEndpoint)
	agree(c, s, "cgroup-root", "cgroupRoot", &c.CgroupRoot, &s.CgroupRoot)
	if s.ImageServiceEndpoint != "" && c.RuntimeEndpoint == "" {
		return fmt.Errorf("imageServiceEndpoint: %q is not usable: given together with containerRuntimeEndpoint", s.ImageServiceEndpoint)
	}
	*s.ImageGCHighThresholdPercent, *s.ImageGCLowThresholdPercent = int32(high), int32(low)
	s.MaxPods, s.NodeLeaseDurationSeconds = int32(maxPods), int32(lease/time.Second)
	if c.IsGiven("eviction-hard") {
		s.SetEvictionHard(c.EvictionThresholds())
		s.Override("evictionHard", "--eviction-hard")
	}
	if c.IsGiven("kube-reserved") {
		s.KubeReserved = c.KubeReserved
		s.Override("kubeReserved", "--kube-reserved")
	}
	if c.IsGiven("system-reserved") {
		s.SystemReserved = c.SystemReserved
		s.Override("systemReserved", "--system-reserved")
	}
	if c.IsGiven("register-with-taints") {
		s.RegisterWithTaints = nil
		for _, text := range c.RegisterWithTaints {
			s.RegisterWithTaints = append(s.RegisterWithTaints, parseTaint(text))
		}
		s.Override("registerWithTaints", "--register-with-taints")
	}
	if c.IsGiven("cluster-domain") {
		s.ClusterDomain = c.ClusterDomain
		s.Override("clusterDomain", "--cluster-domain")
	}
	return nil
}

// parseTaint parses KEY=VALUE:EFFECT. Validate refuses what is not a taint.
func parseTaint(text string) corev1.Taint {
	pair, effect, _ := strings.Cut(text, ":")
	key, value, _ := strings.Cut(pair, "=")
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
}

// agree takes the flag's value if it is given, else the file's, else knarr's default.
func agree[T any](c *config.Config, s *settings.Settings, flag, field string, ours, theirs *T) {
	switch {
	case c.IsGiven(flag):
		*theirs = *ours
		s.Override(field, "--"+flag)
	case s.Has(field):
		*ours = *theirs
	default:
		*theirs = *ours
	}
}

// reconcileListen combines address and port.
func reconcileListen(c *config.Config, s *settings.Settings) error {
	host, port, err := net.SplitHostPort(c.KubeletListen)
	if err != nil {
		return fmt.Errorf("kubelet-listen: %w", err)
	}
	given := c.IsGiven("kubelet-listen")
	if given || !s.Has("address") {
		s.Address = host
	}
	if given || !s.Has("port") {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return fmt.Errorf("kubelet-listen: port %q: %w", port, err)
		}
		s.Port = int32(n)
	}
	c.KubeletListen = net.JoinHostPort(s.Address, strconv.Itoa(int(s.Port)))
	return nil
}

// nodeListen is the address of the node's API, or "-" if it is disabled.
func (w *worker) nodeListen() string {
	if !*w.settings.EnableServer {
		return "-"
	}
	return w.cfg.KubeletListen
}

// logsDir is the folder of pods' logs: the system's for the default data folder, so that log
// collectors find them; "" for another cluster on this machine selects a folder below its data.
func (w *worker) logsDir() string {
	if w.settings.Has("podLogsDir") {
		return w.settings.PodLogsDir
	}
	if w.cfg.DataDir == config.Default().DataDir {
		return logs.SystemPods
	}
	return ""
}

// followCluster completes the settings with what the cluster decides.
func (w *worker) followCluster() {
	if w.settings.ClusterDomain == "" {
		w.settings.ClusterDomain = w.cfg.ClusterDomain
	}
	if len(w.settings.ClusterDNS) == 0 {
		w.settings.ClusterDNS = []string{w.cfg.DNSAddress()}
	}
}

// servingTLS applies the settings to the TLS configuration of the node's API.
func (w *worker) servingTLS(c *tls.Config) (*tls.Config, error) {
	c = c.Clone()
	s := w.settings
	if s.TLSCertFile != "" {
		if _, err := tls.LoadX509KeyPair(s.TLSCertFile, s.TLSPrivateKeyFile); err != nil {
			return nil, fmt.Errorf("tlsCertFile, tlsPrivateKeyFile: %w", err)
		}
		c.Certificates = nil
		// The files are read for each connection, so that a renewal needs no restart.
		c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(s.TLSCertFile, s.TLSPrivateKeyFile)
			return &pair, err
		}
	}
	var err error
	if c.MinVersion, c.CipherSuites, c.CurvePreferences, err = s.TLS(c.MinVersion); err != nil {
		return nil, err
	}
	if file := s.Authentication.X509.ClientCAFile; file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("authentication.x509.clientCAFile: %w", err)
		}
		c.ClientCAs = x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("authentication.x509.clientCAFile: %s has no certificate in PEM", file)
		}
	}
	return c, nil
}
