package config

import (
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// APIServer holds the API server's settings with upstream's names, meanings and defaults.
type APIServer struct {
	flags *pflag.FlagSet // knows which flags were given; nil without a command line
	// Serving is the certificates for HTTPS. Default: the cluster's own.
	Serving
	// CertDir has no effect and is refused without Serving's files, because the cluster's own
	// certificates are in the data folder.
	CertDir string
	Audit   Audit
	// Causes configures the log of the causes of writes.
	Causes InsightLog
	// History configures the history of objects.
	History InsightLog
	// Tracing is a file with the collector of traces and the sampling rate.
	Tracing string
	// Egress is a file with the proxies for outgoing connections.
	Egress string
	// Kubelets configures connections to nodes. ProxyCert and ProxyKey are the client certificate
	// for extension servers.
	Kubelets  Kubelets
	ProxyCert string
	ProxyKey  string
	// AllowPrivileged allows pods with privileged containers.
	AllowPrivileged bool

	// MaxRequests and MaxMutatingRequests together are the seats that flow control divides. If both
	// are 0, there is no limit.
	MaxRequests         int
	MaxMutatingRequests int
	// FlowControl divides the seats by FlowSchemas. Without it there is no limit.
	FlowControl    bool
	Authentication Authentication
	// ServiceAccounts configures the tokens of service accounts.
	ServiceAccounts ServiceAccounts
	// TokenFile is a CSV file of bearer tokens and their users.
	TokenFile string
	// TokenWebhook is a kubeconfig file of the server that authenticates bearer tokens.
	TokenWebhook    string
	TokenWebhookTTL metav1.Duration
	// AuthorizationModes are the authorizers in order; default DefaultAuthorizationModes.
	// AuthorizationConfig is a file that replaces all these authorization settings.
	AuthorizationModes      []string
	AuthorizationConfig     string
	AuthorizationWebhook    string
	AuthorizationPolicy     string // for ABAC
	AuthorizationAllowedTTL metav1.Duration
	AuthorizationRefusedTTL metav1.Duration
	// EncryptionConfig is a file that defines which objects are encrypted in the store.
	EncryptionConfig string
	EncryptionReload bool
	// RequestTimeout is the time limit of requests other than watches and streams.
	RequestTimeout metav1.Duration
	// ShutdownDelay is how long the server keeps serving after /readyz fails.
	ShutdownDelay metav1.Duration
	// ShutdownIdle is how long a stopping server waits for idle connections.
	ShutdownIdle metav1.Duration
	// ShutdownRetryAfter makes a stopping server answer new requests with "retry after" instead of
	// refusing connections.
	ShutdownRetryAfter bool
	// ShutdownWatches is the period over which a stopping server ends its watches; 0 ends all at
	// once.
	ShutdownWatches metav1.Duration
	// LivezGrace is how long after the start /livez succeeds whatever is missing.
	LivezGrace metav1.Duration
	// HTTPTransport is how HTTP is served: fast or plain. Plain is net/http alone.
	HTTPTransport string
	// Page is the page in the browser.
	Page Page
	// Endpoints selects who maintains the endpoints of the Service kubernetes: with lease this
	// server, with none another component.
	Endpoints string
	// Profiling serves the process's profiles. ContentionProfiling adds profiles of blocking.
	Profiling           bool
	ContentionProfiling bool
	// MinRequestTimeout is the minimum lifetime in seconds of a watch without timeoutSeconds.
	MinRequestTimeout int
	// Front holds the settings of HTTP that do not depend on the user.
	Front Front
	// RuntimeConfig turns APIs off or on: KEY=VALUE, see api.ParseSwitches.
	RuntimeConfig []string
	// FeatureGates are NAME=VALUE; see EnabledGates.
	FeatureGates []string
	// EventTTL is the lifetime of Events; 0 means forever.
	EventTTL metav1.Duration
	// LeaseReuse is for how many seconds new Events share a lease of the store.
	LeaseReuse int
	// NotReadyToleration and UnreachableToleration are the seconds that pods without such
	// tolerations stay on a node that is not ready, or unreachable.
	NotReadyToleration    int
	UnreachableToleration int
}

// Audit configures which requests are recorded, and where.
type Audit struct {
	PolicyFile string
	// Log is the file; "-" is the standard output.
	LogPath       string
	LogFormat     string
	LogMaxAge     int // days
	LogMaxBackups int // files
	LogMaxSize    int // megabytes
	LogCompress   bool
	LogBatch      AuditBatching
	LogTruncate   AuditTruncate
	// WebhookConfig is a kubeconfig file of the webhook.
	WebhookConfig   string
	WebhookBackoff  metav1.Duration
	WebhookBatch    AuditBatching
	WebhookTruncate AuditTruncate
}

// AuditTruncate limits events and batches for destinations with size limits. Sizes are in bytes of
// JSON.
type AuditTruncate struct {
	Enabled  bool
	MaxBatch int
	MaxEvent int
	Version  string // of the events: audit.k8s.io/v1
}

// AuditBatching selects whether requests wait until their events are written, and the size of
// batches.
type AuditBatching struct {
	Mode       string // batch, blocking or blocking-strict
	BufferSize int
	MaxSize    int
	MaxWait    metav1.Duration
	Throttle   bool
	QPS        float32
	Burst      int
}

// DefaultAuthorizationModes are the authorizers without any authorization setting.
var DefaultAuthorizationModes = []string{"Node", "RBAC"}

func defaultAPIServer() APIServer {
	truncate := AuditTruncate{MaxBatch: 10 << 20, MaxEvent: 100 << 10, Version: auditVersion}
	return APIServer{
		Authentication: defaultAuthentication(), ServiceAccounts: defaultServiceAccounts(), TokenWebhookTTL: metav1.Duration{Duration: 2 * time.Minute},
		AuthorizationAllowedTTL: metav1.Duration{Duration: 5 * time.Minute}, AuthorizationRefusedTTL: metav1.Duration{Duration: 30 * time.Second},
		Causes:      defaultInsightLog("64Mi"),
		History:     defaultInsightLog("256Mi"),
		Page:        defaultPage(),
		MaxRequests: 400, MaxMutatingRequests: 200, FlowControl: true,
		RequestTimeout: metav1.Duration{Duration: time.Minute}, ShutdownIdle: metav1.Duration{Duration: time.Second},
		Profiling: true, MinRequestTimeout: 1800, EventTTL: metav1.Duration{Duration: time.Hour}, LeaseReuse: 60, AllowPrivileged: true, HTTPTransport: transportFast, Endpoints: reconcileLease, NotReadyToleration: 300, UnreachableToleration: 300,
		Audit: Audit{
			LogFormat: "json", LogMaxAge: 366, LogMaxBackups: 100, LogMaxSize: 100, LogTruncate: truncate, WebhookTruncate: truncate,
			LogBatch:       AuditBatching{Mode: "blocking", BufferSize: 10000, MaxSize: 1},
			WebhookBackoff: metav1.Duration{Duration: 10 * time.Second},
			WebhookBatch:   AuditBatching{Mode: "batch", BufferSize: 10000, MaxSize: 400, MaxWait: metav1.Duration{Duration: 30 * time.Second}, Throttle: true, QPS: 10, Burst: 15},
		},
	}
}

// The transports that can serve HTTP.
const (
	transportFast  = "fast"
	transportPlain = "plain"
)

// Values of Endpoints.
const (
	reconcileLease = "lease"
	reconcileNone  = "none"
)

// KeepsEndpoints reports whether this server maintains the endpoints of the Service kubernetes.
func (c *APIServer) KeepsEndpoints() bool { return c.Endpoints != reconcileNone }

// auditVersion is the only supported version.
const auditVersion = "audit.k8s.io/v1"

// Seats is the number of seats for flow control; negative means no limit.
func (c *APIServer) Seats() int {
	if seats := c.MaxRequests + c.MaxMutatingRequests; c.FlowControl && seats > 0 {
		return seats
	}
	return -1
}

func (c *APIServer) addFlags(f *pflag.FlagSet) {
	c.flags = f
	topic(f, ServingTopic, func(f *pflag.FlagSet) {
		c.Serving.addFlags(f, "the cluster's own")
		f.StringVar(&c.CertDir, "cert-dir", c.CertDir, "`DIR` for certificates; allowed only with --tls-cert-file, without effect\nThe cluster's own certificates are in DATA-DIR/pki.")
		c.Front.addFlags(f)
		f.StringVar(&c.HTTPTransport, "http-transport", c.HTTPTransport, "`TRANSPORT` that serves HTTP: fast, or plain for Go's net/http alone\nWith plain, a watch costs more memory and CPU. It is the way out if a fault is suspected in the fast one.")
		values(f, "http-transport", transportFast, transportPlain)
		c.Page.addFlags(f)
	})
	c.Authentication.addFlags(f)
	topic(f, Authenticating, c.addTokens)
	topic(f, AccountTokens, c.ServiceAccounts.addFlags)
	topic(f, Authorizing, c.addAuthorization)
	topic(f, Admitting, c.addAdmission)
	topic(f, Auditing, c.Audit.addFlags)
	topic(f, Encrypting, c.addEncryption)
	topic(f, Limits, c.addLimits)
	topic(f, Lifecycle, c.addLifecycle)
	topic(f, KubeletAccess, c.addKubeletAccess)
	topic(f, Aggregating, c.addAggregation)
	topic(f, APIs, c.addAPIs)
	topic(f, Diagnosing, c.addDiagnostics)
}

func (c *APIServer) addTokens(f *pflag.FlagSet) {
	f.StringVar(&c.TokenFile, "token-auth-file", c.TokenFile, "CSV `FILE` of bearer tokens, a line each: token,user,uid,\"group1,group2\"\nThe file is read once, at the start.")
	f.StringVar(&c.TokenWebhook, "authentication-token-webhook-config-file", c.TokenWebhook, "kubeconfig `FILE` of the server that authenticates bearer tokens (TokenReview v1)")
	f.DurationVar(&c.TokenWebhookTTL.Duration, "authentication-token-webhook-cache-ttl", c.TokenWebhookTTL.Duration, "time for which that server's answers are cached")
}

func (c *APIServer) addAuthorization(f *pflag.FlagSet) {
	f.StringSliceVar(&c.AuthorizationModes, "authorization-mode", c.AuthorizationModes, "`MODES` of authorization, in order (default: Node,RBAC)")
	values(f, "authorization-mode", "ABAC", "AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook")
	f.StringVar(&c.AuthorizationConfig, "authorization-config", c.AuthorizationConfig, "AuthorizationConfiguration `FILE`, instead of the modes and their webhook\nIt lists the authorizers in order, and webhooks with match conditions in CEL. Changes need no restart.")
	f.StringVar(&c.AuthorizationPolicy, "authorization-policy-file", c.AuthorizationPolicy, "`FILE` of policies for the mode ABAC, one JSON object a line\nThe file is read once, at the start.")
	f.StringVar(&c.AuthorizationWebhook, "authorization-webhook-config-file", c.AuthorizationWebhook, "kubeconfig `FILE` of the authorization server for the mode Webhook (SubjectAccessReview v1)")
	f.DurationVar(&c.AuthorizationAllowedTTL.Duration, "authorization-webhook-cache-authorized-ttl", c.AuthorizationAllowedTTL.Duration, "time for which that server's allowing answers are cached")
	f.DurationVar(&c.AuthorizationRefusedTTL.Duration, "authorization-webhook-cache-unauthorized-ttl", c.AuthorizationRefusedTTL.Duration, "time for which that server's refusing answers are cached")
}

func (c *APIServer) addAdmission(f *pflag.FlagSet) {
	f.BoolVar(&c.AllowPrivileged, "allow-privileged", c.AllowPrivileged, "let pods have privileged containers")
	f.IntVar(&c.NotReadyToleration, "default-not-ready-toleration-seconds", c.NotReadyToleration, "seconds for which pods stay on a node that is not ready\nFor pods without a toleration of their own.")
	f.IntVar(&c.UnreachableToleration, "default-unreachable-toleration-seconds", c.UnreachableToleration, "seconds for which pods stay on a node that is unreachable\nFor pods without a toleration of their own.")
}

func (c *APIServer) addEncryption(f *pflag.FlagSet) {
	f.StringVar(&c.EncryptionConfig, "encryption-provider-config", c.EncryptionConfig, "EncryptionConfiguration `FILE`: which kinds are encrypted in the store, and how\nWithout it nothing is encrypted.")
	f.BoolVar(&c.EncryptionReload, "encryption-provider-config-automatic-reload", c.EncryptionReload, "apply changes of that file without a restart")
}

func (c *APIServer) addLimits(f *pflag.FlagSet) {
	f.BoolVar(&c.FlowControl, "enable-priority-and-fairness", c.FlowControl, "limit requests in flight by FlowSchemas and PriorityLevelConfigurations")
	f.IntVar(&c.MaxRequests, "max-requests-inflight", c.MaxRequests, "requests in flight, added to --max-mutating-requests-inflight\nFlow control divides the sum of both. 0 for both sets no limit.")
	f.IntVar(&c.MaxMutatingRequests, "max-mutating-requests-inflight", c.MaxMutatingRequests, "requests in flight, added to --max-requests-inflight")
	f.DurationVar(&c.RequestTimeout.Duration, "request-timeout", c.RequestTimeout.Duration, "longest time for a request other than a watch or a stream")
	f.IntVar(&c.MinRequestTimeout, "min-request-timeout", c.MinRequestTimeout, "shortest lifetime of a watch without timeoutSeconds, in seconds, 1 or more\nThe lifetime is random, between this and twice as long.")
	f.Float64Var(&c.Front.GoAway, "goaway-chance", c.Front.GoAway, "share of HTTP/2 requests whose client is told to reconnect, 0 to 0.02\nIt spreads clients over several servers behind a load balancer.")
}

func (c *APIServer) addLifecycle(f *pflag.FlagSet) {
	f.DurationVar(&c.LivezGrace.Duration, "livez-grace-period", c.LivezGrace.Duration, "time after the start in which /livez succeeds whatever is missing")
	f.DurationVar(&c.ShutdownDelay.Duration, "shutdown-delay-duration", c.ShutdownDelay.Duration, "time for which a stopping server still serves after /readyz fails")
	f.BoolVar(&c.ShutdownRetryAfter, "shutdown-send-retry-after", c.ShutdownRetryAfter, "while stopping, answer new requests with 429 instead of refusing connections")
	f.DurationVar(&c.ShutdownIdle.Duration, "shutdown-idle-duration", c.ShutdownIdle.Duration, "time for which a stopping server keeps idle connections\nA client may be sending a request on one at this moment.")
	f.DurationVar(&c.ShutdownWatches.Duration, "shutdown-watch-termination-grace-period", c.ShutdownWatches.Duration, "time over which a stopping server ends its watches; 0 ends all at once\nAt least 200 watches end in a second, so that their clients do not all reconnect at once.")
	f.StringVar(&c.Endpoints, "endpoint-reconciler-type", c.Endpoints, "`TYPE`: lease keeps the endpoints of the Service kubernetes, none leaves them alone")
	values(f, "endpoint-reconciler-type", reconcileLease, reconcileNone)
}

func (c *APIServer) addKubeletAccess(f *pflag.FlagSet) {
	c.Kubelets.addFlags(f)
	f.StringVar(&c.Egress, "egress-selector-config-file", c.Egress, "EgressSelectorConfiguration `FILE`: proxies to nodes, webhooks, extension servers and etcd\nWithout it connections are direct. The file is read once, at the start.")
}

func (c *APIServer) addAggregation(f *pflag.FlagSet) {
	f.StringVar(&c.ProxyCert, "proxy-client-cert-file", c.ProxyCert, "client certificate `FILE` for extension servers, PEM (default: the cluster's front proxy's)\nAn authority of --requestheader-client-ca-file signs it. Changes need no restart.")
	f.StringVar(&c.ProxyKey, "proxy-client-key-file", c.ProxyKey, "key `FILE` of that certificate, PEM")
}

func (c *APIServer) addAPIs(f *pflag.FlagSet) {
	f.StringSliceVar(&c.RuntimeConfig, "runtime-config", c.RuntimeConfig, "APIs to turn off: `GROUP/VERSION=false`, GROUP/VERSION/RESOURCE=false (default: all stable ones are served)\nscheduling.k8s.io/v1alpha2=true beside --feature-gates GenericWorkload=true adds Workloads and PodGroups. v1=false is the core group; api/all, api/ga and api/beta are sets of APIs. The most precise entry wins.")
	c.addGates(f)
	f.DurationVar(&c.EventTTL.Duration, "event-ttl", c.EventTTL.Duration, "time for which Events are kept; 0 keeps them until they are deleted")
	f.IntVar(&c.LeaseReuse, "lease-reuse-duration-seconds", c.LeaseReuse, "seconds for which new Events share a lease of the store\nAll Events of a lease expire together. At most a twentieth of --event-ttl is used.")
}

func (c *APIServer) addDiagnostics(f *pflag.FlagSet) {
	causalLog.add(f, &c.Causes)
	history.add(f, &c.History)
	f.StringVar(&c.Tracing, "tracing-config-file", c.Tracing, "TracingConfiguration `FILE`: the OpenTelemetry collector and the share of requests traced\nWithout it requests are not traced.")
	f.BoolVar(&c.Profiling, "profiling", c.Profiling, "serve profiles at /debug/pprof/ and the log level at /debug/flags/v")
	f.BoolVar(&c.ContentionProfiling, "contention-profiling", c.ContentionProfiling, "with --profiling, also profile where goroutines wait (/debug/pprof/block)")
}

func (a *Audit) addFlags(f *pflag.FlagSet) {
	f.StringVar(&a.PolicyFile, "audit-policy-file", a.PolicyFile, "audit Policy `FILE` (audit.k8s.io/v1); without it nothing is recorded")
	f.StringVar(&a.LogPath, "audit-log-path", a.LogPath, "`FILE` for audit events; - is the standard output")
	f.StringVar(&a.LogFormat, "audit-log-format", a.LogFormat, "`FORMAT` of that file: json or legacy")
	values(f, "audit-log-format", "json", "legacy")
	f.IntVar(&a.LogMaxSize, "audit-log-maxsize", a.LogMaxSize, "size in megabytes after which an audit file is rotated; 0 never rotates")
	f.IntVar(&a.LogMaxBackups, "audit-log-maxbackup", a.LogMaxBackups, "rotated audit files to keep; 0 sets no limit")
	f.IntVar(&a.LogMaxAge, "audit-log-maxage", a.LogMaxAge, "days for which rotated audit files are kept; 0 sets no limit")
	f.BoolVar(&a.LogCompress, "audit-log-compress", a.LogCompress, "compress rotated audit files")
	a.LogBatch.addFlags(f, "audit-log-")
	a.LogTruncate.addFlags(f, "audit-log-")
	f.StringVar(&a.WebhookConfig, "audit-webhook-config-file", a.WebhookConfig, "kubeconfig `FILE` of the webhook that receives audit events")
	f.DurationVar(&a.WebhookBackoff.Duration, "audit-webhook-initial-backoff", a.WebhookBackoff.Duration, "pause before the first retry of a request to the webhook")
	a.WebhookBatch.addFlags(f, "audit-webhook-")
	a.WebhookTruncate.addFlags(f, "audit-webhook-")
}

func (t *AuditTruncate) addFlags(f *pflag.FlagSet, prefix string) {
	f.BoolVar(&t.Enabled, prefix+"truncate-enabled", t.Enabled, "limit the size of events and batches")
	f.IntVar(&t.MaxBatch, prefix+"truncate-max-batch-size", t.MaxBatch, "largest batch, in bytes; a larger one is split")
	f.IntVar(&t.MaxEvent, prefix+"truncate-max-event-size", t.MaxEvent, "largest event, in bytes; a larger one loses its request and response objects\nAn event that is still too large after that is dropped.")
	f.StringVar(&t.Version, prefix+"version", t.Version, "API `VERSION` of the events; only audit.k8s.io/v1")
	values(f, prefix+"version", auditVersion)
}

func (b *AuditBatching) addFlags(f *pflag.FlagSet, prefix string) {
	f.StringVar(&b.Mode, prefix+"mode", b.Mode, "`MODE` of writing events: batch, blocking or blocking-strict\nbatch: requests do not wait for their events. blocking: they do. blocking-strict: a request whose first event cannot be written is refused.")
	values(f, prefix+"mode", "batch", "blocking", "blocking-strict")
	f.IntVar(&b.BufferSize, prefix+"batch-buffer-size", b.BufferSize, "events that can wait for a batch; more are dropped")
	f.IntVar(&b.MaxSize, prefix+"batch-max-size", b.MaxSize, "largest number of events in a batch")
	f.DurationVar(&b.MaxWait.Duration, prefix+"batch-max-wait", b.MaxWait.Duration, "longest time that a batch waits for more events")
	f.BoolVar(&b.Throttle, prefix+"batch-throttle-enable", b.Throttle, "limit the rate of batches")
	f.Float32Var(&b.QPS, prefix+"batch-throttle-qps", b.QPS, "batches a second, on average")
	f.IntVar(&b.Burst, prefix+"batch-throttle-burst", b.Burst, "batches that can be sent at once")
}

// addGates adds the flag of the feature gates, which the controllers and the scheduler have too.
func (c *APIServer) addGates(f *pflag.FlagSet) {
	f.StringSliceVar(&c.FeatureGates, "feature-gates", c.FeatureGates, "feature gates of Kubernetes v1.36 as `NAME=BOOL`\nOnly GenericWorkload and GangScheduling can differ from their defaults.")
}

// maxMinRequestTimeout is a year in seconds; twice that fits into a time.Duration.
const maxMinRequestTimeout = 365 * 24 * 60 * 60

func (c *APIServer) validate(bad func(field, value, allowed string)) {
	c.Serving.validate(bad)
	c.Authentication.validate(bad)
	c.ServiceAccounts.validate(bad)
	c.Front.validate(bad)
	c.Page.validate(bad)
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
	if c.MinRequestTimeout < 1 || c.MinRequestTimeout > maxMinRequestTimeout {
		bad("min-request-timeout", fmt.Sprint(c.MinRequestTimeout), fmt.Sprintf("seconds, between 1 and %d (a year)", maxMinRequestTimeout))
	}
	for name, d := range map[string]time.Duration{"shutdown-watch-termination-grace-period": c.ShutdownWatches.Duration, "livez-grace-period": c.LivezGrace.Duration} {
		if d < 0 {
			bad(name, d.String(), "0 or more, such as 30s")
		}
	}
	if c.HTTPTransport != transportFast && c.HTTPTransport != transportPlain {
		bad("http-transport", c.HTTPTransport, "fast or plain")
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
	causalLog.validate(&c.Causes, bad)
	history.validate(&c.History, bad)
}

// authorizesByFlags reports whether a flag or a value other than the default configures an
// authorization webhook.
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
