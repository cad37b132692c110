// Package controller is the loop that every control loop runs in: edge triggered, level driven. Events from
// Views become keys, keys wait in a queue (one worker per key at a time), and Reconcile reads the current state.
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

// Key names what is to be reconciled.
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
	// Keys gives the keys that an event concerns.
	Keys func(client.Event) []Key
}

// Result says when to look again.
type Result struct {
	// After asks for another Reconcile of the key after this time; 0 does not.
	After time.Duration
}

// Loop is one control loop. Reconcile returning an error is retried with exponential backoff (5 ms to 16 min
// 40 s, as upstream's work queues); Conflict errors are retried at once without being reported; an error wrapped by Terminal is not retried.
type Loop struct {
	Name      string
	Inputs    []Input
	Reconcile func(ctx context.Context, key Key) (Result, error)
	// Workers is how many keys are reconciled at a time; 0 is 1.
	Workers int
	// Resync queues every key of the first input this often; 0 never does.
	Resync time.Duration
	// Clock measures how long keys wait; nil is the machine's.
	Clock clock.WithTicker
	// Log is told of keys that are retried; nil is slog.Default().
	Log *slog.Logger
	// Sources run beside the workers and add keys that no View's event leads to (timers, discovery). They end with ctx.
	Sources []func(ctx context.Context, add func(Key, time.Duration))
}

// Starter builds and runs one controller until ctx ends; controllers/all.go lists them all.
type Starter struct {
	Name string // upstream's name: "deployment-controller"
	// Account is the controller's service account in kube-system where its name differs from Name
	// (node-lifecycle-controller acts as node-controller). One that begins with "system:" is a whole user name.
	Account string
	// EventSource is who events say that they are from, where that is not Name either: people and alerts know upstream's.
	EventSource string
	Run         func(ctx context.Context, env Env) error
}

// User is the name that the controller acts under.
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

// Env is what controllers get to work with.
type Env struct {
	// Client has the identity system:serviceaccount:kube-system:NAME of the controller.
	Client client.Interface
	Events client.Recorder
	Config Config
	// Clock is nil for the machine's time.
	Clock clock.WithTicker
	// Log is nil for slog.Default().
	Log *slog.Logger
}

// Now is the time on the clock.
func (e Env) Now() time.Time {
	if e.Clock == nil {
		return time.Now()
	}
	return e.Clock.Now()
}

// Logger is where the controller logs.
func (e Env) Logger() *slog.Logger {
	if e.Log == nil {
		return slog.Default()
	}
	return e.Log
}

// Config is what the cluster's operator decided.
type Config struct {
	ClusterName        string
	PodCIDR            string // 10.42.0.0/16; each node gets a NodeCIDRMaskSize part of it; "" where others decide that
	NodeCIDRMaskSize   int    // 24
	ServiceCIDR        string
	CACert             []byte // PEM, for root-ca-cert-publisher
	SigningCert        []byte // PEM, the signers' CA
	SigningKey         []byte // PEM; nil where the signers do not run
	ClusterSigningTime time.Duration
	NodeMonitorGrace   time.Duration // 40 s (upstream --node-monitor-grace-period)
	TerminatedPodLimit int           // 12500
	// LegacyTokenPeriod is how long a generated token may be unused before it is invalid, and then, before it is deleted.
	LegacyTokenPeriod time.Duration // a year (upstream --legacy-service-account-token-clean-up-period)
	// Elsewhere tells of kinds that the API server keeps in stores of their own, whose revisions are no others'; nil: all lie in one.
	Elsewhere func(schema.GroupResource) bool
	// LegacyToken signs a token that does not expire, bound to a Secret of type kubernetes.io/service-account-token; nil
	// where the process does not hold the key.
	LegacyToken func(account *corev1.ServiceAccount, secret *corev1.Secret) (string, error)
}
