package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// APIServer are settings of the API server that have upstream's names, meanings and defaults.
type APIServer struct {
	flags *pflag.FlagSet // knows which were given; nil without a command line
	// Serving is with which certificates HTTPS is served. Default: the cluster's own.
	Serving
	// CertDir says nothing beside the files of Serving, without which it is refused: the cluster's own certificates lie in the data folder.
	CertDir string `json:"certDir,omitempty"`
	Audit   Audit  `json:"audit,omitzero"`
	// Tracing is a file that says to whom requests' traces are sent, and how many.
	Tracing string `json:"tracingConfig,omitempty"`
	// Egress is a file that says through which proxies others are connected to.
	Egress string `json:"egressSelectorConfig,omitempty"`
	// Kubelets are how nodes are reached; ProxyCert and ProxyKey are the certificate that extension servers know this server by.
	Kubelets  Kubelets `json:"kubelets,omitzero"`
	ProxyCert string   `json:"proxyClientCert,omitempty"`
	ProxyKey  string   `json:"proxyClientKey,omitempty"`
	// AllowPrivileged lets pods have privileged containers.
	AllowPrivileged bool `json:"allowPrivileged"`

	// MaxRequests and MaxMutatingRequests together are the seats that flow control divides. 0 for both does not limit.
	MaxRequests         int `json:"maxRequestsInFlight,omitempty"`
	MaxMutatingRequests int `json:"maxMutatingRequestsInFlight,omitempty"`
	// FlowControl divides the seats by FlowSchemas; without it nothing is limited.
	FlowControl    bool           `json:"enablePriorityAndFairness"`
	Authentication Authentication `json:"authentication,omitzero"`
	// ServiceAccounts are the tokens of service accounts.
	ServiceAccounts ServiceAccounts `json:"serviceAccounts,omitzero"`
	// TokenFile is a file of bearer tokens and whose they are (CSV).
	TokenFile string `json:"tokenFile,omitempty"`
	// TokenWebhook is a kubeconfig file of the server that knows whose bearer tokens are.
	TokenWebhook    string          `json:"tokenWebhook,omitempty"`
	TokenWebhookTTL metav1.Duration `json:"tokenWebhookTTL,omitzero"`
	// AuthorizationModes are the authorizers in order, DefaultAuthorizationModes when empty; AuthorizationConfig is a file that says more of them,
	// instead of the rest here.
	AuthorizationModes      []string        `json:"authorizationModes,omitempty"`
	AuthorizationConfig     string          `json:"authorizationConfig,omitempty"`
	AuthorizationWebhook    string          `json:"authorizationWebhook,omitempty"`
	AuthorizationPolicy     string          `json:"authorizationPolicy,omitempty"` // of ABAC
	AuthorizationAllowedTTL metav1.Duration `json:"authorizationAllowedTTL,omitzero"`
	AuthorizationRefusedTTL metav1.Duration `json:"authorizationRefusedTTL,omitzero"`
	// EncryptionConfig is a file that says which objects lie encrypted in the store.
	EncryptionConfig string `json:"encryptionConfig,omitempty"`
	EncryptionReload bool   `json:"encryptionReload,omitempty"`
	// RequestTimeout bounds requests other than watches and streams.
	RequestTimeout metav1.Duration `json:"requestTimeout,omitzero"`
	// ShutdownDelay is how long the server goes on after it has said that it is not ready any more.
	ShutdownDelay metav1.Duration `json:"shutdownDelay,omitzero"`
	// ShutdownIdle is how long the server, when it ends, waits for connections on which nothing is asked.
	ShutdownIdle metav1.Duration `json:"shutdownIdle,omitzero"`
	// ShutdownRetryAfter tells those who come while the server's last requests are answered to come again, instead of taking no connections.
	ShutdownRetryAfter bool `json:"shutdownSendRetryAfter,omitempty"`
	// ShutdownWatches is over how long a time watches end on the server's end; 0 ends all at once.
	ShutdownWatches metav1.Duration `json:"shutdownWatchTerminationGracePeriod,omitzero"`
	// LivezGrace is for how long after its start the server is alive whatever it lacks.
	LivezGrace metav1.Duration `json:"livezGracePeriod,omitzero"`
	// Endpoints says who keeps the endpoints of the Service kubernetes: lease is this server, none is somebody else.
	Endpoints string `json:"endpointReconcilerType,omitempty"`
	// Profiling serves the process's own profiles; ContentionProfiling has those of what goroutines wait for.
	Profiling           bool `json:"profiling"`
	ContentionProfiling bool `json:"contentionProfiling,omitempty"`
	// MinRequestTimeout is for how many seconds a watch without timeoutSeconds lives at least.
	MinRequestTimeout int `json:"minRequestTimeout,omitempty"`
	// Front is what is said of requests whoever they are from.
	Front Front `json:"front,omitzero"`
	// RuntimeConfig turns APIs off: KEY=VALUE, see api.ParseSwitches.
	RuntimeConfig []string `json:"runtimeConfig,omitempty"`
	// FeatureGates are NAME=VALUE; only the defaults are possible.
	FeatureGates []string `json:"featureGates,omitempty"`
	// EventTTL is how long Events are kept; 0 is for ever.
	EventTTL metav1.Duration `json:"eventTTL,omitzero"`
	// LeaseReuse is for how many seconds new Events share a lease of the store.
	LeaseReuse int `json:"leaseReuseDurationSeconds,omitempty"`
	// NotReadyToleration and UnreachableToleration are for how many seconds pods that say nothing of it stay on a node that is not ready, or not reached.
	NotReadyToleration    int `json:"defaultNotReadyTolerationSeconds"`
	UnreachableToleration int `json:"defaultUnreachableTolerationSeconds"`
}

// Audit is what is recorded of requests, and where that goes.
type Audit struct {
	PolicyFile string `json:"policyFile,omitempty"`
	// Log is the file; "-" is the standard output.
	LogPath       string        `json:"logPath,omitempty"`
	LogFormat     string        `json:"logFormat,omitempty"`
	LogMaxAge     int           `json:"logMaxAge,omitempty"`     // days
	LogMaxBackups int           `json:"logMaxBackups,omitempty"` // files
	LogMaxSize    int           `json:"logMaxSize,omitempty"`    // megabytes
	LogCompress   bool          `json:"logCompress,omitempty"`
	LogBatch      AuditBatching `json:"logBatch,omitzero"`
	LogTruncate   AuditTruncate `json:"logTruncate,omitzero"`
	// WebhookConfig is a kubeconfig file that names the webhook.
	WebhookConfig   string          `json:"webhookConfig,omitempty"`
	WebhookBackoff  metav1.Duration `json:"webhookBackoff,omitzero"`
	WebhookBatch    AuditBatching   `json:"webhookBatch,omitzero"`
	WebhookTruncate AuditTruncate   `json:"webhookTruncate,omitzero"`
}

// AuditTruncate bounds events and batches for a destination that does not take large ones; sizes are in bytes of JSON.
type AuditTruncate struct {
	Enabled  bool   `json:"enabled,omitempty"`
	MaxBatch int    `json:"maxBatch,omitempty"`
	MaxEvent int    `json:"maxEvent,omitempty"`
	Version  string `json:"version,omitempty"` // of the events: audit.k8s.io/v1
}

// AuditBatching says whether requests wait for their events to be written, or how many of them are gathered.
type AuditBatching struct {
	Mode       string          `json:"mode,omitempty"` // batch, blocking or blocking-strict
	BufferSize int             `json:"bufferSize,omitempty"`
	MaxSize    int             `json:"maxSize,omitempty"`
	MaxWait    metav1.Duration `json:"maxWait,omitzero"`
	Throttle   bool            `json:"throttle,omitempty"`
	QPS        float32         `json:"qps,omitempty"`
	Burst      int             `json:"burst,omitempty"`
}

// DefaultAuthorizationModes are the authorizers when nothing says otherwise.
var DefaultAuthorizationModes = []string{"Node", "RBAC"}

func defaultAPIServer() APIServer {
	truncate := AuditTruncate{MaxBatch: 10 << 20, MaxEvent: 100 << 10, Version: auditVersion}
	return APIServer{
		Authentication: defaultAuthentication(), ServiceAccounts: defaultServiceAccounts(), TokenWebhookTTL: metav1.Duration{Duration: 2 * time.Minute},
		AuthorizationAllowedTTL: metav1.Duration{Duration: 5 * time.Minute}, AuthorizationRefusedTTL: metav1.Duration{Duration: 30 * time.Second},
		MaxRequests: 400, MaxMutatingRequests: 200, FlowControl: true,
		RequestTimeout: metav1.Duration{Duration: time.Minute}, ShutdownIdle: metav1.Duration{Duration: time.Second},
		Profiling: true, MinRequestTimeout: 1800, EventTTL: metav1.Duration{Duration: time.Hour}, LeaseReuse: 60, AllowPrivileged: true, Endpoints: reconcileLease, NotReadyToleration: 300, UnreachableToleration: 300,
		Audit: Audit{
			LogFormat: "json", LogMaxAge: 366, LogMaxBackups: 100, LogMaxSize: 100, LogTruncate: truncate, WebhookTruncate: truncate,
			LogBatch:       AuditBatching{Mode: "blocking", BufferSize: 10000, MaxSize: 1},
			WebhookBackoff: metav1.Duration{Duration: 10 * time.Second},
			WebhookBatch:   AuditBatching{Mode: "batch", BufferSize: 10000, MaxSize: 400, MaxWait: metav1.Duration{Duration: 30 * time.Second}, Throttle: true, QPS: 10, Burst: 15},
		},
	}
}

// Who keeps the endpoints of the Service kubernetes.
const (
	reconcileLease = "lease"
	reconcileNone  = "none"
)

// KeepsEndpoints says that this server does.
func (c *APIServer) KeepsEndpoints() bool { return c.Endpoints != reconcileNone }

// auditVersion is the only one that there is any more.
const auditVersion = "audit.k8s.io/v1"

// Seats are what flow control divides; negative when nothing is limited.
func (c *APIServer) Seats() int {
	if seats := c.MaxRequests + c.MaxMutatingRequests; c.FlowControl && seats > 0 {
		return seats
	}
	return -1
}

func (c *APIServer) addFlags(f *pflag.FlagSet) {
	c.flags = f
	f.IntVar(&c.MaxRequests, "max-requests-inflight", c.MaxRequests, "seats for requests at one time, together with --max-mutating-requests-inflight; FlowSchemas divide them")
	f.IntVar(&c.MaxMutatingRequests, "max-mutating-requests-inflight", c.MaxMutatingRequests, "see --max-requests-inflight; 0 for both does not limit")
	f.BoolVar(&c.FlowControl, "enable-priority-and-fairness", c.FlowControl, "limit requests at one time by FlowSchemas and PriorityLevelConfigurations")
	c.Serving.addFlags(f, "the cluster's own")
	c.Authentication.addFlags(f)
	c.ServiceAccounts.addFlags(f)
	c.Kubelets.addFlags(f)
	f.StringVar(&c.CertDir, "cert-dir", c.CertDir, "only beside --tls-cert-file and --tls-private-key-file, with which it says nothing: the cluster's own certificates are in DATA-DIR/pki")
	f.StringVar(&c.ProxyCert, "proxy-client-cert-file", c.ProxyCert, "client certificate that this server shows to extension servers, of an authority of --requestheader-client-ca-file, PEM file; its changes count without a restart (default: one of the cluster's own front proxy authority)")
	f.StringVar(&c.ProxyKey, "proxy-client-key-file", c.ProxyKey, "key of that certificate, PEM file")
	f.BoolVar(&c.AllowPrivileged, "allow-privileged", c.AllowPrivileged, "let pods have privileged containers")
	f.StringVar(&c.TokenFile, "token-auth-file", c.TokenFile, "file of bearer tokens, a line for each: token,user,uid,\"group1,group2\"; read once")
	f.StringVar(&c.TokenWebhook, "authentication-token-webhook-config-file", c.TokenWebhook, "kubeconfig file of the server that knows whose bearer tokens are (TokenReview v1)")
	f.DurationVar(&c.TokenWebhookTTL.Duration, "authentication-token-webhook-cache-ttl", c.TokenWebhookTTL.Duration, "how long its answers are remembered")
	f.StringSliceVar(&c.AuthorizationModes, "authorization-mode", c.AuthorizationModes, "authorizers in order: ABAC, AlwaysAllow, AlwaysDeny, Node, RBAC, Webhook (default: Node,RBAC)")
	f.StringVar(&c.AuthorizationConfig, "authorization-config", c.AuthorizationConfig, "file with the authorizers in order (AuthorizationConfiguration), instead of the other authorization flags; its changes count without a restart")
	f.StringVar(&c.AuthorizationPolicy, "authorization-policy-file", c.AuthorizationPolicy, "file of policies for --authorization-mode=ABAC, or for ABAC in --authorization-config, a JSON object a line; read once")
	f.StringVar(&c.AuthorizationWebhook, "authorization-webhook-config-file", c.AuthorizationWebhook, "kubeconfig file of the server that --authorization-mode=Webhook asks (SubjectAccessReview v1)")
	f.DurationVar(&c.AuthorizationAllowedTTL.Duration, "authorization-webhook-cache-authorized-ttl", c.AuthorizationAllowedTTL.Duration, "how long it is remembered that it has allowed something")
	f.DurationVar(&c.AuthorizationRefusedTTL.Duration, "authorization-webhook-cache-unauthorized-ttl", c.AuthorizationRefusedTTL.Duration, "how long it is remembered that it has not")
	f.StringVar(&c.EncryptionConfig, "encryption-provider-config", c.EncryptionConfig, "file that says which objects lie encrypted in the store (EncryptionConfiguration)")
	f.BoolVar(&c.EncryptionReload, "encryption-provider-config-automatic-reload", c.EncryptionReload, "changes of that file count without a restart")
	f.DurationVar(&c.RequestTimeout.Duration, "request-timeout", c.RequestTimeout.Duration, "how long a request other than watches and streams may take")
	f.IntVar(&c.MinRequestTimeout, "min-request-timeout", c.MinRequestTimeout, "for how many seconds, 1 or more, a watch lives at least, twice that at most, unless its client says how long")
	c.Front.addFlags(f)
	f.DurationVar(&c.ShutdownDelay.Duration, "shutdown-delay-duration", c.ShutdownDelay.Duration, "how long requests are still served after /readyz has begun to fail on the server's end")
	f.DurationVar(&c.ShutdownIdle.Duration, "shutdown-idle-duration", c.ShutdownIdle.Duration, "how long open connections on which nothing is asked are kept on the server's end: a client may just be sending")
	f.BoolVar(&c.ShutdownRetryAfter, "shutdown-send-retry-after", c.ShutdownRetryAfter, "take connections until all requests are answered on the server's end, and tell those who come meanwhile to come again (429)")
	f.DurationVar(&c.ShutdownWatches.Duration, "shutdown-watch-termination-grace-period", c.ShutdownWatches.Duration, "over how long a time watches are ended on the server's end, at least 200 a second, so that their clients do not all come to others at once; 0 ends all at once")
	f.DurationVar(&c.LivezGrace.Duration, "livez-grace-period", c.LivezGrace.Duration, "for how long after its start the server is alive (/livez) whatever it lacks")
	f.StringVar(&c.Endpoints, "endpoint-reconciler-type", c.Endpoints, "who keeps the endpoints of the Service kubernetes: lease (this server: a control plane has one) or none (somebody else)")
	f.BoolVar(&c.Profiling, "profiling", c.Profiling, "serve the server's own profiles at /debug/pprof/, and its log's level at /debug/flags/v")
	f.BoolVar(&c.ContentionProfiling, "contention-profiling", c.ContentionProfiling, "with --profiling: measure what goroutines wait for, /debug/pprof/block")
	f.StringSliceVar(&c.RuntimeConfig, "runtime-config", c.RuntimeConfig, "APIs that are not served to clients: GROUP/VERSION=false, GROUP/VERSION/RESOURCE=false, v1=false for the core group, api/all, api/ga or api/beta=false; what is more precise wins")
	f.StringSliceVar(&c.FeatureGates, "feature-gates", c.FeatureGates, "NAME=true|false of feature gates of Kubernetes v1.36, which can only be as they are by default")
	f.DurationVar(&c.EventTTL.Duration, "event-ttl", c.EventTTL.Duration, "how long Events are kept; 0: until somebody deletes them")
	f.IntVar(&c.LeaseReuse, "lease-reuse-duration-seconds", c.LeaseReuse, "for how many seconds new Events share a lease of the store, with which they go; not more than a twentieth of --event-ttl")
	f.IntVar(&c.NotReadyToleration, "default-not-ready-toleration-seconds", c.NotReadyToleration, "for how many seconds pods that do not say so themselves stay on a node that is not ready")
	f.IntVar(&c.UnreachableToleration, "default-unreachable-toleration-seconds", c.UnreachableToleration, "for how many seconds pods that do not say so themselves stay on a node that is not reached")
	f.StringVar(&c.Tracing, "tracing-config-file", c.Tracing, "file that says which OpenTelemetry collector is sent the traces of how many requests (TracingConfiguration)")
	f.StringVar(&c.Egress, "egress-selector-config-file", c.Egress, "file that says through which proxies nodes, webhooks, extension servers, issuers and an outside etcd are connected to (EgressSelectorConfiguration); read once")
	a := &c.Audit
	f.StringVar(&a.PolicyFile, "audit-policy-file", a.PolicyFile, "file with the audit policy (audit.k8s.io/v1); without it nothing is recorded")
	f.StringVar(&a.LogPath, "audit-log-path", a.LogPath, "file that audit events are written to; '-' is the standard output")
	f.StringVar(&a.LogFormat, "audit-log-format", a.LogFormat, "format of that file: json or legacy")
	f.IntVar(&a.LogMaxAge, "audit-log-maxage", a.LogMaxAge, "days that old audit files are kept; 0 without limit")
	f.IntVar(&a.LogMaxBackups, "audit-log-maxbackup", a.LogMaxBackups, "old audit files that are kept; 0 without limit")
	f.IntVar(&a.LogMaxSize, "audit-log-maxsize", a.LogMaxSize, "megabytes after which an audit file is put aside; 0 never does")
	f.BoolVar(&a.LogCompress, "audit-log-compress", a.LogCompress, "compress old audit files")
	a.LogBatch.addFlags(f, "audit-log-")
	a.LogTruncate.addFlags(f, "audit-log-")
	f.StringVar(&a.WebhookConfig, "audit-webhook-config-file", a.WebhookConfig, "kubeconfig file of the webhook that gets audit events")
	f.DurationVar(&a.WebhookBackoff.Duration, "audit-webhook-initial-backoff", a.WebhookBackoff.Duration, "pause before the first retry of a request to the webhook")
	a.WebhookBatch.addFlags(f, "audit-webhook-")
	a.WebhookTruncate.addFlags(f, "audit-webhook-")
}

func (t *AuditTruncate) addFlags(f *pflag.FlagSet, prefix string) {
	f.BoolVar(&t.Enabled, prefix+"truncate-enabled", t.Enabled, "bound the size of events and batches")
	f.IntVar(&t.MaxBatch, prefix+"truncate-max-batch-size", t.MaxBatch, "bytes of a batch; a larger one is split")
	f.IntVar(&t.MaxEvent, prefix+"truncate-max-event-size", t.MaxEvent, "bytes of an event; a larger one goes without the objects of request and answer, and is lost if it is still larger")
	f.StringVar(&t.Version, prefix+"version", t.Version, "API group and version of the events")
}

func (b *AuditBatching) addFlags(f *pflag.FlagSet, prefix string) {
	f.StringVar(&b.Mode, prefix+"mode", b.Mode, "batch: requests do not wait for their events to be written; blocking: they do; blocking-strict: a request whose first event can not be written is refused")
	f.IntVar(&b.BufferSize, prefix+"batch-buffer-size", b.BufferSize, "events that may wait for a batch; more are lost")
	f.IntVar(&b.MaxSize, prefix+"batch-max-size", b.MaxSize, "most events of a batch")
	f.DurationVar(&b.MaxWait.Duration, prefix+"batch-max-wait", b.MaxWait.Duration, "longest that a batch waits for more events")
	f.BoolVar(&b.Throttle, prefix+"batch-throttle-enable", b.Throttle, "bound how many batches are sent")
	f.Float32Var(&b.QPS, prefix+"batch-throttle-qps", b.QPS, "batches sent in a second")
	f.IntVar(&b.Burst, prefix+"batch-throttle-burst", b.Burst, "batches sent at once")
}

// mostMinRequestTimeout is a year, in seconds: twice as long is still a time.Duration.
const mostMinRequestTimeout = 365 * 24 * 60 * 60

func (c *APIServer) validate(bad func(field, value, allowed string)) {
	c.Serving.validate(bad)
	c.Authentication.validate(bad)
	c.ServiceAccounts.validate(bad)
	c.Front.validate(bad)
	c.Kubelets.validate(bad)
	if c.CertDir != "" && (c.TLSCert == "" || c.TLSKey == "") {
		bad("cert-dir", c.CertDir, "tls-cert-file and tls-private-key-file beside it; the cluster's own certificates are in the data folder")
	}
	if (c.ProxyCert == "") != (c.ProxyKey == "") {
		bad("proxy-client-cert-file", c.ProxyCert, "given together with proxy-client-key-file")
	}
	if c.LeaseReuse < 1 {
		bad("lease-reuse-duration-seconds", fmt.Sprint(c.LeaseReuse), "1 or more")
	}
	validateFeatureGates(c.FeatureGates, bad)
	if c.MinRequestTimeout < 1 || c.MinRequestTimeout > mostMinRequestTimeout {
		bad("min-request-timeout", fmt.Sprint(c.MinRequestTimeout), fmt.Sprintf("seconds, between 1 and %d (a year)", mostMinRequestTimeout))
	}
	for name, d := range map[string]time.Duration{"shutdown-watch-termination-grace-period": c.ShutdownWatches.Duration, "livez-grace-period": c.LivezGrace.Duration} {
		if d < 0 {
			bad(name, d.String(), "0 or more, such as 30s")
		}
	}
	if c.Endpoints != reconcileLease && c.Endpoints != reconcileNone {
		bad("endpoint-reconciler-type", c.Endpoints, "lease or none")
	}
	if c.EventTTL.Duration < 0 {
		bad("event-ttl", c.EventTTL.Duration.String(), "0 or more, such as 1h")
	}
	if c.AuthorizationConfig != "" && c.authorizesByFlags() {
		bad("authorization-config", c.AuthorizationConfig, "no --authorization-mode or --authorization-webhook-* beside it")
	}
	if abac := slices.Contains(c.AuthorizationModes, "ABAC"); c.AuthorizationConfig == "" && abac != (c.AuthorizationPolicy != "") {
		bad("authorization-policy-file", c.AuthorizationPolicy, "a file of policies together with --authorization-mode=ABAC, and only then")
	}
	c.Audit.validate(bad)
}

// authorizesByFlags tells whether something says how one webhook is asked: a value that is not the default, or a flag, whatever its value.
func (c *APIServer) authorizesByFlags() bool {
	d := defaultAPIServer()
	if len(c.AuthorizationModes) > 0 || c.AuthorizationWebhook != "" || c.AuthorizationAllowedTTL != d.AuthorizationAllowedTTL || c.AuthorizationRefusedTTL != d.AuthorizationRefusedTTL {
		return true
	}
	return c.flags != nil && slices.ContainsFunc([]string{
		"authorization-mode", "authorization-webhook-config-file", "authorization-webhook-version",
		"authorization-webhook-cache-authorized-ttl", "authorization-webhook-cache-unauthorized-ttl",
	}, c.flags.Changed)
}

func (a *Audit) validate(bad func(field, value, allowed string)) {
	for name, value := range map[string]int{"maxage": a.LogMaxAge, "maxbackup": a.LogMaxBackups, "maxsize": a.LogMaxSize} {
		if value < 0 {
			bad("audit-log-"+name, fmt.Sprint(value), "0 or more")
		}
	}
	for prefix, b := range map[string]*AuditBatching{"audit-log-": &a.LogBatch, "audit-webhook-": &a.WebhookBatch} {
		switch b.Mode {
		case "batch", "blocking", "blocking-strict", "":
		default:
			bad(prefix+"mode", b.Mode, "batch, blocking or blocking-strict")
		}
		if b.Mode == "batch" && (b.BufferSize < 1 || b.MaxSize < 1) {
			bad(prefix+"batch-buffer-size", fmt.Sprint(b.BufferSize), "1 or more, as "+prefix+"batch-max-size")
		}
		if b.Mode == "batch" && b.Throttle && !(b.QPS > 0 && b.Burst > 0) {
			bad(prefix+"batch-throttle-qps", fmt.Sprintf("%v, burst %d", b.QPS, b.Burst), "more than 0, as "+prefix+"batch-throttle-burst, with "+prefix+"batch-throttle-enable")
		}
	}
	used := map[string]bool{"audit-log-": a.LogPath != "", "audit-webhook-": a.WebhookConfig != ""}
	for prefix, t := range map[string]*AuditTruncate{"audit-log-": &a.LogTruncate, "audit-webhook-": &a.WebhookTruncate} {
		if t.Version != auditVersion && t.Version != "" {
			bad(prefix+"version", t.Version, auditVersion)
		}
		if (t.Enabled || used[prefix]) && (t.MaxEvent < 1 || t.MaxBatch < t.MaxEvent) {
			bad(prefix+"truncate-max-event-size", fmt.Sprint(t.MaxEvent), "1 or more, and not more than "+prefix+"truncate-max-batch-size")
		}
	}
	if a.LogFormat != "json" && a.LogFormat != "legacy" && a.LogFormat != "" {
		bad("audit-log-format", a.LogFormat, "json or legacy")
	}
}
