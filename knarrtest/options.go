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
	chosen      bool // controllers are
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

// OnDisk keeps the cluster in a folder that stays, with every write synced. A cluster that starts
// there again goes on where the last one ended. The default is a temporary folder without syncing.
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

// WithNode adds a hollow node with this name, these labels and taints. What its status.capacity
// does not say is as with [WithNodes].
func WithNode(node corev1.Node) Option {
	return func(o *options) { o.nodes = append(o.nodes, *node.DeepCopy()) }
}

// Fate is what becomes of a pod's containers on a hollow node. The zero Fate: they run until the
// pod is deleted.
type Fate struct {
	// Ends: the containers end by themselves, with ExitCode, when they have run for After.
	Ends     bool
	After    time.Duration
	ExitCode int32
	// Unready containers run, but are not ready.
	Unready bool
	// Waiting keeps the containers from starting. It is the reason in their status, such as
	// ImagePullBackOff.
	Waiting string
}

// WithFate says what becomes of pods on hollow nodes. It is asked whenever a pod changes, from
// several goroutines, with a copy of the pod. Containers that end are restarted as the pod's
// restartPolicy says, with a kubelet's back-off.
func WithFate(fate func(pod *corev1.Pod) Fate) Option { return func(o *options) { o.fate = fate } }

// WithCompletedJobs lets pods whose restartPolicy is not Always, such as a Job's, succeed when they
// have run for after.
func WithCompletedJobs(after time.Duration) Option {
	return WithFate(func(pod *corev1.Pod) Fate {
		return Fate{Ends: pod.Spec.RestartPolicy != corev1.RestartPolicyAlways, After: after}
	})
}

// WithCRDs installs the CustomResourceDefinitions of files, and of folders' .yaml, .yml and .json
// files. A path that does not exist is an error. Start returns when their resources are served.
func WithCRDs(paths ...string) Option {
	return func(o *options) { o.crdPaths = append(o.crdPaths, paths...) }
}

// WithCRDObjects is WithCRDs for objects.
func WithCRDObjects(crds ...*apiextensionsv1.CustomResourceDefinition) Option {
	return func(o *options) { o.crds = append(o.crds, crds...) }
}

// WithWebhooks prepares webhooks that the test serves itself. [Cluster.Webhooks] is the address and
// the certificate to serve them with. The MutatingWebhookConfigurations and
// ValidatingWebhookConfigurations of the files and folders are installed so that they lead there: a
// Service's path becomes the URL's, and the CA is the certificate's.
func WithWebhooks(paths ...string) Option {
	return func(o *options) { o.hasHooks, o.hookPaths = true, append(o.hookPaths, paths...) }
}

// WithoutControllers runs none. Namespaces then get no service accounts, so the ServiceAccount
// admission plugin is off too, and deleted namespaces stay.
func WithoutControllers() Option { return WithControllers() }

// WithControllers runs the named controllers only. Names are upstream's, such as
// deployment-controller; an unknown name is an error of Start. Without serviceaccount-controller
// the ServiceAccount admission plugin is off.
func WithControllers(names ...string) Option {
	return func(o *options) { o.chosen, o.controllers = true, append(o.controllers, names...) }
}

// WithoutScheduler leaves pods unbound, but for those that name their node.
func WithoutScheduler() Option { return func(o *options) { o.noScheduler = true } }

// WithClock lets the test move the cluster's time. The package's documentation lists what follows
// it. Do not give one Clock to several clusters that should move apart.
func WithClock(c *Clock) Option { return func(o *options) { o.clock = c } }

// WithAudit records requests in the file [Cluster.AuditLog], one JSON event a line. Level is an
// audit level: Metadata, Request or RequestResponse.
func WithAudit(level string) Option { return func(o *options) { o.audit = level } }

// WithFlags gives flags of `knarr apiserver`, such as "--runtime-config=api/alpha=true" or
// "--disable-admission-plugins=LimitRanger"; `knarr apiserver --help-all` lists them.
func WithFlags(flags ...string) Option {
	return func(o *options) { o.flags = append(o.flags, flags...) }
}

// WithLog shows what the cluster logs. By default its last warnings are part of a failed test's
// log.
func WithLog(log *slog.Logger) Option { return func(o *options) { o.log = log } }

// Clock is the machine's time, and can be moved ahead. The zero Clock is ready to use. Safe for
// concurrent use.
type Clock struct{ moved movedclock.Clock }

// Now is the time on the clock.
func (c *Clock) Now() time.Time { return c.moved.Now() }

// Advance moves the clock ahead, and returns at once. What the move makes due happens a moment
// later, so a test waits for it as for anything else. A negative d does nothing.
func (c *Clock) Advance(d time.Duration) { c.moved.Advance(d) }

func (o *options) hollowFate() func(*corev1.Pod) hollow.Fate {
	if o.fate == nil {
		return nil
	}
	return func(pod *corev1.Pod) hollow.Fate { return hollow.Fate(o.fate(pod)) }
}
