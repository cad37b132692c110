// Package controller is the loop that every controller runs: edge triggered, level driven. Events
// from Views become keys. Keys wait in a queue, with one worker per key at a time. Reconcile reads
// the current state and takes a step.
//
// Words. A Loop is one control loop. An Input maps events to keys. A Starter is a controller in the
// list of all controllers.
//
// In: Views of client.Interface. Out: keys to Reconcile. The package also holds the parts that
// controllers share: adoption by owners, ControllerRevisions, creation of pods, leader election.
package controller

import (
	"context"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"github.com/knarr-project/knarr/internal/client"
)

// Key names the object to reconcile.
type Key struct{ Namespace, Name string }

func (k Key) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// Input maps the events of one View to keys.
type Input struct {
	View client.View
	// Keys returns the keys that an event concerns.
	Keys func(client.Event) []Key
}

// Result says when to reconcile the key again.
type Result struct {
	// After is the delay until the next Reconcile of the key; 0 means none.
	After time.Duration
}

// Loop is one control loop. If Reconcile returns an error, the key is retried with exponential
// backoff (5 ms to 16 min 40 s, as in upstream's work queues). Conflict errors are retried at once
// and not logged. An error wrapped by Terminal is not retried.
type Loop struct {
	Name      string
	Inputs    []Input
	Reconcile func(ctx context.Context, key Key) (Result, error)
	// Workers is the number of keys reconciled at a time; 0 means 1.
	Workers int
	// Resync is the interval at which every key of the first input is queued; 0 means never.
	Resync time.Duration
	// Clock measures the delays of keys; nil is the machine's clock.
	Clock clock.WithTicker
	// Log receives errors of keys that are retried; nil is slog.Default().
	Log *slog.Logger
	// Queues counts the work of the loop's queue; nil means no metrics.
	Queues *QueueMetrics
	// Sources run beside the workers and add keys that no event of a View leads to (timers,
	// discovery). They end with ctx.
	Sources []func(ctx context.Context, add func(Key, time.Duration))
}

// Starter builds and runs one controller until ctx ends; controllers/all.go lists them all.
type Starter struct {
	Name string // upstream's name, such as "deployment-controller"
	// Account is the controller's service account in kube-system if it differs from Name:
	// node-lifecycle-controller acts as node-controller. A value that begins with "system:" is a
	// whole user name.
	Account string
	// EventSource is the source of the controller's Events if it differs from Name. Users and
	// alerts expect upstream's.
	EventSource string
	// Gate is the feature gate that the controller needs; empty for features that are always on.
	Gate string
	Run  func(ctx context.Context, env Env) error
}

// User returns the user name under which the controller acts.
func (s Starter) User() string {
	account := s.Account
	if account == "" {
		account = s.Name
	}
	if strings.HasPrefix(account, "system:") {
		return account
	}
	return "system:serviceaccount:kube-system:" + account
}

// Env is the environment of a running controller.
type Env struct {
	// Client acts as system:serviceaccount:kube-system:NAME of the controller.
	Client client.Interface
	Events client.Recorder
	Config Config
	// Clock is nil for the machine's time.
	Clock clock.WithTicker
	// Log is nil for slog.Default().
	Log *slog.Logger
	// Queues counts the work of the controllers' queues; nil means no metrics.
	Queues *QueueMetrics
}

// Now returns the time of the clock.
func (e Env) Now() time.Time {
	if e.Clock == nil {
		return time.Now()
	}
	return e.Clock.Now()
}

// Logger returns the controller's log.
func (e Env) Logger() *slog.Logger {
	if e.Log == nil {
		return slog.Default()
	}
	return e.Log
}

// Config holds the settings of the cluster's operator.
type Config struct {
	ClusterName string
	// Gates are the feature gates that are on besides the defaults.
	Gates []string
	// PodCIDR is such as 10.42.0.0/16, of which each node gets a part; "" if another component
	// assigns ranges.
	PodCIDR          string
	NodeCIDRMaskSize int // such as 24, the prefix length of a node's part
	ServiceCIDR      string
	ClusterDomain    string // such as cluster.local
	// Servers returns the names and addresses of the API servers, which no node may have. Nil means
	// that the process does not know them.
	Servers func(ctx context.Context) ([]Server, error)
	// LoadBalancerPool is the flag's value: ranges, nodes, resources or none.
	LoadBalancerPool []string
	// NodeListens names the ports where knarr itself listens on nodes' addresses, such as TCP/6443.
	NodeListens map[string]string
	CACert      []byte // PEM, for root-ca-cert-publisher
	SigningCert []byte // PEM, the signers' CA
	SigningKey  []byte // PEM; nil in a process without signers
	// Live returns the present values of the three fields above if they change while controllers
	// run; nil means that they do not.
	Live               func() Authority
	ClusterSigningTime time.Duration
	NodeMonitorGrace   time.Duration // default 40 s (upstream --node-monitor-grace-period)
	TerminatedPodLimit int           // default 12500
	// LegacyTokenPeriod is the time without use after which a generated token becomes invalid, and
	// after another such period is deleted. The default is a year (upstream
	// --legacy-service-account-token-clean-up-period).
	LegacyTokenPeriod time.Duration
	// Architecture makes the controllers serve Components and Systems, and compare them with the
	// cluster.
	Architecture bool
	// LocalStorage makes the controllers provision volumes on the disks of nodes, and make a
	// default StorageClass for them in a new cluster.
	LocalStorage bool
	// Elsewhere reports the kinds that the API server keeps in a store of their own, with its own
	// revisions; nil means that one store holds all kinds.
	Elsewhere func(schema.GroupResource) bool
	// LegacyToken signs a token that does not expire, bound to a Secret of type
	// kubernetes.io/service-account-token; nil if the process does not hold the key.
	LegacyToken func(account *corev1.ServiceAccount, secret *corev1.Secret) (string, error)
	// LegacyTokenStale reports whether such a token must be signed again because its key is being
	// replaced; nil means never.
	LegacyTokenStale func(token string) bool
}

// Server is one API server.
type Server struct {
	Name string // of its host; the node on that machine has it too
	// Names are the DNS names and addresses at which the server is reached.
	Names []string
}

// Authority is the cluster's CA at one moment.
type Authority struct {
	CACert, SigningCert, SigningKey []byte
	// Chain is in PEM and follows each signed certificate; it is the signer's certificate by its
	// predecessor during a rotation.
	Chain []byte
	// Changed is closed when a field, or the key of LegacyToken, has changed; nil means never.
	Changed <-chan struct{}
}

// Authority returns the cluster's CA as it is now.
func (c *Config) Authority() Authority {
	if c.Live != nil {
		return c.Live()
	}
	return Authority{CACert: c.CACert, SigningCert: c.SigningCert, SigningKey: c.SigningKey}
}

// OnAuthority is a Source that adds all keys of an input when the cluster's CA changes.
func OnAuthority(env Env, in Input) func(ctx context.Context, add func(Key, time.Duration)) {
	return func(ctx context.Context, add func(Key, time.Duration)) {
		changed := env.Config.Authority().Changed
		for changed != nil {
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
			changed = env.Config.Authority().Changed // before the values are read
			for _, obj := range in.View.List("", nil) {
				for _, k := range in.Keys(client.Event{Type: client.Modified, Old: obj, Object: obj}) {
					add(k, 0)
				}
			}
		}
	}
}
