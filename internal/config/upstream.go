package config

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// A server accepts the command lines that installers write for kube-apiserver. A flag with another
// name here is accepted under both names (aliases). A flag with only one possible value is accepted
// with that value (fixed). The two halves of an address can be given separately. Every other flag
// is an error that says what to do instead (hints). No flag is ignored.

// aliases maps upstream's flag names to knarr's.
var aliases = map[string]string{
	"etcd-servers":             "store",
	"etcd-cafile":              "store-ca",
	"etcd-certfile":            "store-cert",
	"etcd-keyfile":             "store-key",
	"etcd-compaction-interval": "compaction-interval",
	"service-cluster-ip-range": "service-cidr",
	"service-node-port-range":  "node-port-range",
}

// fixed lists flags whose values cannot be changed. Other values are refused, with the reason.
var fixed = []struct {
	name   string
	values []string
	why    string
}{
	{"aggregator-reject-forwarding-redirect", []string{"true"}, "redirects of extension servers are never followed"},
	{"authentication-token-webhook-version", []string{"v1"}, "the version of TokenReviews"},
	{"authorization-webhook-version", []string{"v1"}, "the version of SubjectAccessReviews"},
	{"disable-http2-serving", []string{"false"}, "HTTP/2 is always served"},
	{"emulation-forward-compatible", []string{"false"}, "no other version is emulated"},
	{"enable-aggregator-routing", []string{"true", "false"}, "Services are always resolved to their endpoints"},
	{"enable-garbage-collector", []string{"true"}, "dependents of deleted owners are always collected"},
	{"enable-logs-handler", []string{"false"}, "the machine's logs are not served"},
	{"kubernetes-service-node-port", []string{"0"}, "the Service kubernetes has no node port"},
	{"logging-format", []string{"text"}, "the log is text"},
	{"max-connection-bytes-per-sec", []string{"0"}, "connections are not throttled"},
	{"permit-address-sharing", []string{"true", "false"}, "Go always sets SO_REUSEADDR, upstream too"},
	{"runtime-config-emulation-forward-compatible", []string{"false"}, "no other version is emulated"},
	{"service-account-lookup", []string{"true"}, "tokens of deleted accounts are always refused"},
	{"storage-backend", []string{"etcd3"}, "the store is etcd, embedded or outside"},
	{"storage-media-type", []string{"application/vnd.kubernetes.protobuf"}, "built-in kinds are stored as protobuf"},
	{"watch-cache", []string{"true"}, "reads and watches are served from memory"},
}

// hints say what to do instead of kube-apiserver's flags that do not exist here.
var hints = map[string]string{
	"admission-control":                     "use --enable-admission-plugins and --disable-admission-plugins; the order of plugins is fixed",
	"allow-metric-labels":                   "metrics have all of their labels; leave some out where they are scraped (metric_relabel_configs)",
	"allow-metric-labels-manifest":          "metrics have all of their labels; leave some out where they are scraped (metric_relabel_configs)",
	"coordinated-leadership-lease-duration": "coordinated leader election is behind a feature gate that is off by default, and not here",
	"coordinated-leadership-renew-deadline": "coordinated leader election is behind a feature gate that is off by default, and not here",
	"coordinated-leadership-retry-period":   "coordinated leader election is behind a feature gate that is off by default, and not here",
	"debug-socket-path":                     "profiles are at /debug/pprof/ of the API server, for those who may get that path (--profiling)",
	"delete-collection-workers":             "leave it out: how many objects of a collection are deleted at a time is not set",
	"disabled-metrics":                      "leave metrics out where they are scraped (metric_relabel_configs)",
	"emulated-version":                      "no other version than Kubernetes v1.36 is emulated",
	"etcd-count-metric-poll-period":         "leave it out: objects are counted when /metrics is asked",
	"etcd-db-metric-poll-interval":          "leave it out: how often the store's size is measured is not set",
	"etcd-healthcheck-timeout":              "leave it out: how long the store may take to answer a health check is not set",
	"etcd-readycheck-timeout":               "leave it out: how long the store may take to answer a health check is not set",
	"external-hostname":                     "use --advertise-address; --service-account-issuer and --service-account-jwks-uri for the discovery of tokens' keys",
	"http2-max-streams-per-connection":      "leave it out: the number of streams of a connection is Go's own; --max-requests-inflight bounds requests",
	"kubelet-timeout":                       "leave it out: how long a kubelet may take to take a connection is not set; --request-timeout bounds requests",
	"log-flush-frequency":                   "leave it out: each line of the log is written at once",
	"log-json-info-buffer-size":             "leave it out: each line of the log is written at once, as text",
	"log-json-split-stream":                 "leave it out: the log is text and goes to the standard error",
	"log-text-info-buffer-size":             "leave it out: each line of the log is written at once",
	"log-text-split-stream":                 "leave it out: the log goes to the standard error",
	"min-compatibility-version":             "no other version than Kubernetes v1.36 is emulated",
	"peer-advertise-ip":                     "requests are not proxied between API servers: a control plane has one",
	"peer-advertise-port":                   "requests are not proxied between API servers: a control plane has one",
	"peer-ca-file":                          "requests are not proxied between API servers: a control plane has one",
	"permit-port-sharing":                   "one server has one port; choose another with --secure-port or --listen",
	"show-hidden-metrics-for-version":       "no metrics are hidden",
	"storage-initialization-timeout":        "leave it out: the server is ready once it has read its store, however long that takes",
	"version":                               "use `knarr version`",
	"vmodule":                               "the log has one level (--log-level, -v)",
	"watch-cache-sizes":                     "leave it out: the cache grows and shrinks with what there is",
}

// UpstreamHint says what to do instead of a flag of kube-apiserver that does not exist here. It
// returns "" for other flags.
func UpstreamHint(name string) string { return hints[name] }

// UpstreamAlias returns knarr's name of a flag of kube-apiserver, which is mostly the same.
func UpstreamAlias(name string) string {
	if ours, ok := aliases[name]; ok {
		return ours
	}
	return name
}

// addUpstream adds kube-apiserver's flag names. The Server group must have been added before.
func (c *Config) addUpstream(f *pflag.FlagSet) {
	for _, name := range slices.Sorted(maps.Keys(aliases)) {
		if flag := f.Lookup(aliases[name]); flag != nil {
			annotate(flag, aliasesKey, append(AliasesOf(flag), name)...)
		}
	}
	f.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if ours, ok := aliases[name]; ok {
			name = ours
		}
		return pflag.NormalizedName(name)
	})
	topic(f, Upstream, func(f *pflag.FlagSet) {
		f.Var(&addressPart{address: &c.Listen}, "bind-address", "`IP` address of --listen")
		f.Var(&addressPart{address: &c.Listen, isPort: true}, "secure-port", "port of --listen")
		f.VarP(&verbosity{level: &c.LogLevel}, "v", "v", "log level as a number: up to 3 is info, 4 and more is debug")
		for _, only := range fixed {
			addFixed(f, only.name, only.values, only.why)
		}
	})
}

// addFixed adds a flag with one accepted value, or with two equivalent ones.
func addFixed(f *pflag.FlagSet, name string, allowed []string, why string) {
	value := &choice{values: allowed, value: allowed[0], why: why}
	usage := oneOf(allowed) + ": " + why
	if len(allowed) == 1 {
		usage = "only " + usage
	}
	flag := f.VarPF(value, name, "", usage)
	if value.Type() == "bool" {
		flag.NoOptDefVal = "true"
	}
	values(f, name, allowed...)
}

// addressPart is the host or the port of an address host:port.
type addressPart struct {
	address *string
	isPort  bool
}

func (h *addressPart) split() (host, port string) {
	if h.address == nil {
		return "", ""
	}
	host, port, _ = net.SplitHostPort(*h.address) // Validate reports an invalid address
	return host, port
}

func (h *addressPart) String() string {
	host, port := h.split()
	if h.isPort {
		return port
	}
	return host
}

func (h *addressPart) Set(text string) error {
	host, port := h.split()
	if h.isPort {
		n, err := strconv.ParseUint(text, 10, 16)
		if err != nil || n == 0 {
			return errors.New("a port, between 1 and 65535")
		}
		port = text
	} else {
		if host = strings.TrimSpace(text); host == "" {
			host = "0.0.0.0"
		}
		if net.ParseIP(host) == nil {
			return errors.New("an IP address, such as 0.0.0.0")
		}
	}
	*h.address = net.JoinHostPort(host, port)
	return nil
}

func (h *addressPart) Type() string {
	if h.isPort {
		return "int"
	}
	return "ip"
}

// verbosity is a klog level that sets the log level.
type verbosity struct {
	level *string
	given string
}

// debugFrom is the lowest klog level that enables debug logs.
const debugFrom = 4

func (v *verbosity) String() string { return v.given }

func (v *verbosity) Set(text string) error {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return errors.New("a number, such as 2")
	}
	*v.level, v.given = "info", text
	if n >= debugFrom {
		*v.level = "debug"
	}
	return nil
}

func (v *verbosity) Type() string { return "level" }

// choice is a flag with few accepted values, often one.
type choice struct {
	values []string
	value  string
	why    string
}

func (c *choice) String() string { return c.value }

func (c *choice) Set(text string) error {
	if c.Type() == "bool" {
		b, err := strconv.ParseBool(text)
		if err != nil {
			return err
		}
		text = strconv.FormatBool(b)
	}
	if !slices.Contains(c.values, text) {
		return fmt.Errorf("it can only be %s: %s", strings.Join(c.values, " or "), c.why)
	}
	c.value = text
	return nil
}

func (c *choice) Type() string {
	if slices.Contains(c.values, "true") || slices.Contains(c.values, "false") {
		return "bool"
	}
	return "string"
}
