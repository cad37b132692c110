package knarrtest

import (
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/knarr-project/knarr/internal/hollow"
	"github.com/knarr-project/knarr/internal/movedclock"
	"github.com/knarr-project/knarr/knarrtest/internal/hooks"
)

// Option changes what [Start] and [New] start.
type Option func(*options)

type options struct {
	folder      string
	nodes       []corev1.Node
	fate        func(*corev1.Pod) Fate
	chosen      bool // WithControllers was given
	controllers []string
	noScheduler bool
	clock       *Clock
	crdPaths    []string
	crds        []*apiextensionsv1.CustomResourceDefinition
	hookPaths   []string
	hooks       hooks.Configurations
	hasHooks    bool
	audit       string
	flags       []string
	log         *slog.Logger
}

// OnDisk keeps the cluster in a folder that stays, and syncs every write. A cluster that starts
// there again continues where the last one ended. The default is a temporary folder without
// syncing.
func OnDisk(folder string) Option { return func(o *options) { o.folder = folder } }

// WithNodes adds n hollow nodes, node-0 and so on, each with 8 CPUs, 32 GiB and room for 110 pods.
func WithNodes(n int) Option {
	return func(o *options) {
		for range n {
			node := corev1.Node{}
			node.Name = nodeName(len(o.nodes))
			o.nodes = append(o.nodes, node)
		}
	}
}

// WithNode adds a hollow node with this name, labels and taints. Missing resources in its
// status.capacity are those of [WithNodes].
func WithNode(node corev1.Node) Option {
	return func(o *options) { o.nodes = append(o.nodes, *node.DeepCopy()) }
}

// Fate defines what happens to a pod's containers on a hollow node. With the zero Fate they run
// until the pod is deleted.
type Fate struct {
	// Ends makes the containers exit on their own with ExitCode after running for After.
	Ends     bool
	After    time.Duration
	ExitCode int32
	// Unready containers run but are not ready.
	Unready bool
	// Waiting keeps the containers from starting. It is the waiting reason in their status, such as
	// ImagePullBackOff.
	Waiting string
}

// WithFate sets the fates of pods on hollow nodes. fate is called whenever a pod changes, from
// several goroutines, with a copy of the pod. Ended containers are restarted according to the pod's
// restartPolicy, with a kubelet's back-off.
func WithFate(fate func(pod *corev1.Pod) Fate) Option { return func(o *options) { o.fate = fate } }

// WithCompletedJobs makes pods whose restartPolicy is not Always, such as a Job's, succeed after
// running for after.
func WithCompletedJobs(after time.Duration) Option {
	return WithFate(func(pod *corev1.Pod) Fate {
		return Fate{Ends: pod.Spec.RestartPolicy != corev1.RestartPolicyAlways, After: after}
	})
}

// WithCRDs installs CustomResourceDefinitions from files, and from the .yaml, .yml and .json files
// of folders. A missing path is an error. Start returns when their resources are served.
func WithCRDs(paths ...string) Option {
	return func(o *options) { o.crdPaths = append(o.crdPaths, paths...) }
}

// WithCRDObjects is WithCRDs for objects.
func WithCRDObjects(crds ...*apiextensionsv1.CustomResourceDefinition) Option {
	return func(o *options) { o.crds = append(o.crds, crds...) }
}

// WithWebhooks prepares webhooks that the test serves itself, with the address and certificate of
// [Cluster.Webhooks]. It installs the MutatingWebhookConfigurations and
// ValidatingWebhookConfigurations of the files and folders so that they point to that address. The
// path of a Service becomes the path of the URL, and the CA is the certificate's.
func WithWebhooks(paths ...string) Option {
	return func(o *options) { o.hasHooks, o.hookPaths = true, append(o.hookPaths, paths...) }
}

// WithoutControllers runs no controllers. Namespaces then get no service accounts, so the
// ServiceAccount admission plugin is off too, and deleted namespaces stay.
func WithoutControllers() Option { return WithControllers() }

// WithControllers runs only the named controllers. Names are upstream's, such as
// deployment-controller; an unknown name is an error of Start. Without serviceaccount-controller
// the ServiceAccount admission plugin is off.
func WithControllers(names ...string) Option {
	return func(o *options) { o.chosen, o.controllers = true, append(o.controllers, names...) }
}

// WithoutScheduler leaves pods unbound unless they name their node.
func WithoutScheduler() Option { return func(o *options) { o.noScheduler = true } }

// WithClock lets the test move the cluster's time. The package's documentation lists the parts that
// follow it. Clusters that need separate times need separate Clocks.
func WithClock(c *Clock) Option { return func(o *options) { o.clock = c } }

// WithAudit records requests in the file [Cluster.AuditLog], one JSON event per line. Level is an
// audit level: Metadata, Request or RequestResponse.
func WithAudit(level string) Option { return func(o *options) { o.audit = level } }

// WithFlags sets flags of `knarr apiserver`, such as "--runtime-config=api/alpha=true" or
// "--disable-admission-plugins=LimitRanger". `knarr apiserver --help-all` lists them.
func WithFlags(flags ...string) Option {
	return func(o *options) { o.flags = append(o.flags, flags...) }
}

// WithLog sends the cluster's log to log. By default a failed test's log contains the last
// warnings.
func WithLog(log *slog.Logger) Option { return func(o *options) { o.log = log } }

// Clock shows the machine's time and can be moved ahead. The zero Clock is ready to use. It is safe
// for concurrent use.
type Clock struct{ moved movedclock.Clock }

// Now returns the time on the clock.
func (c *Clock) Now() time.Time { return c.moved.Now() }

// Advance moves the clock ahead and returns at once. The effects follow a moment later, so a test
// must wait for them as for any other change. A negative d does nothing.
func (c *Clock) Advance(d time.Duration) { c.moved.Advance(d) }

func (o *options) hollowFate() func(*corev1.Pod) hollow.Fate {
	if o.fate == nil {
		return nil
	}
	return func(pod *corev1.Pod) hollow.Fate { return hollow.Fate(o.fate(pod)) }
}
