package kubelet

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/auth/delegated"
	"github.com/knarr-project/knarr/internal/kubelet/server"
	"github.com/knarr-project/knarr/internal/kubelet/worker"
)

// serve opens the node's HTTPS API.
func (k *Kubelet) serve(ctx context.Context) (run func(context.Context), err error) {
	if k.Listen == "-" {
		return func(context.Context) {}, nil
	}
	authn, authz := k.Authenticator, k.Authorizer
	asked := &delegated.Auth{Client: k.Client, Now: k.Now, TTL: k.answersKept()}
	switch {
	case k.ClientCAs != nil:
		asked.Certificates = auth.FollowCertificates(k.ClientCAs, k.Now)
	case k.TLS != nil && k.TLS.ClientCAs != nil:
		asked.Certificates = auth.NewCertificates(k.TLS.ClientCAs, k.Now)
	}
	asked.NoTokens, asked.Anonymous = !*k.Settings.Authentication.Webhook.Enabled, *k.Settings.Authentication.Anonymous.Enabled
	if authn == nil {
		authn = asked
	}
	if authz == nil {
		authz = asked
		if k.Settings.Authorization.Mode == kubeletconfig.KubeletAuthorizationModeAlwaysAllow {
			authz = allowAll{}
		}
	}
	var kept http.Handler
	if k.Spans != nil {
		kept = k.Spans.Handler()
	}
	all := server.Config{
		Listen: k.Listen, TLS: k.TLS, Authenticator: authn, Authorizer: authz, NodeName: k.NodeName, Runtime: k.Runtime,
		Images: k.Config.Images, Pods: pods{k}, LogsDir: k.LogsDir, SystemLogs: "/var/log", Healthy: k.healthy, Log: k.log,
		Stats: k.stats, Metrics: k.metrics.Handler(), Probes: k.metrics.ProbeHandler(), Measure: k.metrics.Serve, Configz: k.configz(), Settings: k.Flagz,
		Journalctl: journalctl(), Switches: k.switches(), Checkpoints: k.checkpoints(), Tracer: k.Tracer,
		Spans: kept,
	}
	if run, _, err = server.Listen(ctx, all); err != nil || k.Settings.ReadOnlyPort == 0 {
		return run, err
	}
	open := all
	open.Listen, open.TLS, open.ReadOnly = net.JoinHostPort(k.Settings.Address, strconv.Itoa(int(k.Settings.ReadOnlyPort))), nil, true
	readOnly, _, err := server.Listen(ctx, open)
	if err != nil {
		return nil, fmt.Errorf("readOnlyPort: %w", err)
	}
	return func(ctx context.Context) {
		var both sync.WaitGroup
		both.Add(1)
		go func() { defer both.Done(); readOnly(ctx) }()
		run(ctx)
		both.Wait()
	}, nil
}

// allowAll lets each authenticated user do everything.
type allowAll struct{}

func (allowAll) Authorize(context.Context, auth.Attributes) (auth.Decision, string, error) {
	return auth.Allow, "authorization.mode is AlwaysAllow", nil
}

// switches are the groups of handlers that the settings turn on and off.
func (k *Kubelet) switches() server.Switches {
	s := k.Settings
	return server.Switches{
		NoDebugging: !*s.EnableDebuggingHandlers, NoSystemLogs: !*s.EnableSystemLogHandler, LogQueries: *s.EnableSystemLogQuery,
		NoProfiles: !*s.EnableProfilingHandler, NoFlags: !*s.EnableDebugFlagsHandler,
	}
}

// checkpoints is the folder of containers' checkpoints, or "" if the gate is off.
func (k *Kubelet) checkpoints() string {
	if on, set := k.Settings.FeatureGates["ContainerCheckpoint"]; set && !on {
		return ""
	}
	return filepath.Join(k.RootDir, "checkpoints")
}

// journalctl is the path of the program that reads the system's journal, or "".
func journalctl() string {
	path, err := exec.LookPath("journalctl")
	if err != nil {
		return ""
	}
	return path
}

// answersKept is how long answers of the API server about callers are kept.
func (k *Kubelet) answersKept() delegated.TTL {
	s := k.Settings
	return delegated.TTL{
		Token: s.Authentication.Webhook.CacheTTL.Duration, Allowed: s.Authorization.Webhook.CacheAuthorizedTTL.Duration,
		Denied: s.Authorization.Webhook.CacheUnauthorizedTTL.Duration,
	}
}

// configz is the effective configuration in upstream's shape.
func (k *Kubelet) configz() any {
	c := k.Settings.DeepCopy()
	c.StaticPodURLHeader = nil // may have secrets
	c.CgroupRoot, c.ContainerRuntimeEndpoint, c.PodLogsDir = k.CgroupRoot, k.RuntimeEndpoint, k.LogsDir
	if host, port, err := net.SplitHostPort(k.Listen); err == nil {
		c.Address = host
		if n, err := strconv.ParseInt(port, 10, 32); err == nil {
			c.Port = int32(n)
		}
	}
	return c
}

// canStartPods returns an error if pods cannot start although the runtime is up. The node is not
// ready then.
func (k *Kubelet) canStartPods() error {
	if err := k.shutdown.Err(); err != nil {
		return err
	}
	if err := k.healthy(); err != nil || k.groups == nil {
		return err
	}
	if err := k.groups.Ready(); err != nil {
		return fmt.Errorf("pods' cgroups cannot be made: %w", err)
	}
	return nil
}

func (k *Kubelet) healthy() error { return k.pleg.Healthy(k.Now()) }

// pods gives the node's API access to the workers.
type pods struct{ k *Kubelet }

func (p pods) Find(namespace, name string, uid types.UID) (worker.View, bool) {
	var found worker.View
	ok := false
	for _, w := range p.k.Workers() {
		v := w.View()
		if v.Pod.Namespace != namespace || v.Pod.Name != name || uid != "" && v.Pod.UID != uid {
			continue
		}
		// While an old pod of the same name is still ending, return the younger one.
		if !ok || found.Pod.CreationTimestamp.Before(&v.Pod.CreationTimestamp) {
			found, ok = v, true
		}
	}
	return found, ok
}

func (p pods) Views() []worker.View {
	var out []worker.View
	for _, w := range p.k.Workers() {
		out = append(out, w.View())
	}
	return out
}

// statsPods are the pods whose usage is measured.
func (k *Kubelet) statsPods() []*corev1.Pod {
	var out []*corev1.Pod
	for _, w := range k.Workers() {
		v := w.View()
		p := v.Pod.DeepCopy()
		p.Status = v.Status
		out = append(out, p)
	}
	return out
}
