package config

import (
	"strings"
	"testing"
	"time"
)

func TestDefaultsAreValid(t *testing.T) {
	c := Default()
	if err := c.Complete(); err != nil {
		t.Fatal(err)
	}
	if got := c.ServiceIP(10).String(); got != "10.43.0.10" {
		t.Errorf("DNS Service address is %s", got)
	}
}

func TestValidateNamesFieldValueAndAllowedValues(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"listen without port":          {func(c *Config) { c.Listen = "0.0.0.0" }, `listen: "0.0.0.0" is not usable`},
		"node name in upper case":      {func(c *Config) { c.NodeName = "Node" }, `node-name: "Node"`},
		"pod range too small":          {func(c *Config) { c.PodCIDR = "10.0.0.0/25" }, `pod-cidr: "10.0.0.0/25"`},
		"no room for DNS":              {func(c *Config) { c.ServiceCIDR = "10.43.0.0/29" }, "of 16 addresses at least"},
		"families beside pods":         {func(c *Config) { c.ServiceCIDR = "10.43.0.0/16,fd00::/108" }, "of 16 addresses at least"},
		"ranges overlap":               {func(c *Config) { c.ServiceCIDR = "10.42.1.0/24" }, "does not overlap pod-cidr"},
		"node ports in wrong order":    {func(c *Config) { c.NodePortRange = "9-8" }, `node-port-range: "9-8"`},
		"unknown log level":            {func(c *Config) { c.LogLevel = "loud" }, `log-level: "loud"`},
		"run folder too long":          {func(c *Config) { c.RunDir = "/" + strings.Repeat("x", 80) }, "run-dir"},
		"advertise address not an IP":  {func(c *Config) { c.AdvertiseAddress = "host" }, `advertise-address: "host"`},
		"join is not a URL":            {func(c *Config) { c.Join = "host:6443" }, `join: "host:6443"`},
		"cluster domain with a blank":  {func(c *Config) { c.ClusterDomain = "a b" }, `cluster-domain: "a b"`},
		"a threshold of no signal":     {func(c *Config) { c.EvictionHard = []string{"disk<5%"} }, `eviction-hard: "disk<5%" is not usable: SIGNAL<QUANTITY`},
		"a threshold without a sign":   {func(c *Config) { c.EvictionHard = []string{"nodefs.available=5%"} }, "eviction-hard"},
		"more than all of the disk":    {func(c *Config) { c.EvictionHard = []string{"nodefs.available<500%"} }, "a part such as 10%"},
		"images removed at 101 %":      {func(c *Config) { c.ImageGCHigh = 101 }, `image-gc-high-threshold: "101"`},
		"an end above the beginning":   {func(c *Config) { c.ImageGCLow = 90 }, "which is 85"},
		"no pods allowed on this node": {func(c *Config) { c.MaxPods = 0 }, `max-pods: "0"`},
		"port of no machine":           {func(c *Config) { c.Observe.SecurePort = 70000 }, `secure-port: "70000"`},
		"bind address with a port":     {func(c *Config) { c.Observe.BindAddress = "127.0.0.1:1" }, `bind-address: "127.0.0.1:1"`},
		"certificate without a key":    {func(c *Config) { c.Observe.TLSCert = "x" }, `tls-cert-file: "x"`},
		"key without a certificate":    {func(c *Config) { c.APIServer.TLSKey = "x" }, "given together with tls-private-key-file"},
		"a named pair without a key":   {func(c *Config) { c.APIServer.TLSNamed = []string{"x:a.example.com"} }, `tls-sni-cert-key: "x:a.example.com"`},
		"an unknown version of TLS":    {func(c *Config) { c.APIServer.TLSMinVersion = "1.2" }, `tls-min-version: "1.2" is not usable: one of VersionTLS10`},
		"an unknown cipher suite":      {func(c *Config) { c.APIServer.TLSCiphers = []string{"ROT13"} }, `tls-cipher-suites: "ROT13"`},
		"ciphers without HTTP/2's":     {func(c *Config) { c.APIServer.TLSCiphers = []string{"TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"} }, "which HTTP/2 asks for"},
		"too many clients sent away":   {func(c *Config) { c.APIServer.Front.GoAway = 0.5 }, `goaway-chance: "0.5" is not usable: between 0 and 0.02`},
		"an unknown transport":         {func(c *Config) { c.APIServer.HTTPTransport = "slow" }, `http-transport: "slow" is not usable: fast or plain`},
		"a page that is neither":       {func(c *Config) { c.APIServer.Page.Served = "maybe" }, `ui: "maybe" is not usable: on or off`},
		"a log-in without openid":      {func(c *Config) { c.APIServer.Page.OIDCScopes = []string{"email"} }, `ui-oidc-scopes: "email" is not usable: openid among the scopes`},
		"origins of no expression":     {func(c *Config) { c.APIServer.Front.Origins = []string{"("} }, `cors-allowed-origins: "("`},
		"origins of any host's part":   {func(c *Config) { c.APIServer.Front.Origins = []string{"example.com$"} }, "is not bound to the beginning"},
		"Events of less than nothing":  {func(c *Config) { c.APIServer.EventTTL.Duration = -1 }, `event-ttl: "-1ns"`},
		"an unknown gate":              {func(c *Config) { c.APIServer.FeatureGates = []string{"Nope=true"} }, "unrecognized feature gate: Nope"},
		"a gate of another component":  {func(c *Config) { c.APIServer.FeatureGates = []string{"wardle:x=true"} }, "component not registered: wardle"},
		"a gate that is locked":        {func(c *Config) { c.APIServer.FeatureGates = []string{"SidecarContainers=false"} }, "cannot set feature gate SidecarContainers to false, feature is locked to true"},
		"a gate that is off":           {func(c *Config) { c.APIServer.FeatureGates = []string{"kube:AllAlpha=true"} }, "AllAlpha=false, as by default"},
		"a gate that is on":            {func(c *Config) { c.APIServer.FeatureGates = []string{"APIServerIdentity=0"} }, "APIServerIdentity=true, as by default"},
		"a gate that needs another":    {func(c *Config) { c.APIServer.FeatureGates = []string{"GangScheduling=true"} }, "GenericWorkload=true beside GangScheduling=true"},
		"a gate without a value":       {func(c *Config) { c.APIServer.FeatureGates = []string{"APIServerIdentity"} }, "missing bool value for APIServerIdentity"},
		"a gate neither on nor off":    {func(c *Config) { c.APIServer.FeatureGates = []string{"APIServerIdentity=x"} }, "invalid value of APIServerIdentity"},
		"an unknown directive":         {func(c *Config) { c.APIServer.Front.StrictTransport = []string{"forever"} }, `strict-transport-security-directives: "forever"`},
		"watches of less than nothing": {func(c *Config) { c.APIServer.MinRequestTimeout = -1 }, `min-request-timeout: "-1"`},
		"watches that end at once":     {func(c *Config) { c.APIServer.MinRequestTimeout = 0 }, `min-request-timeout: "0" is not usable: seconds, between 1 and 31536000`},
		"watches of centuries":         {func(c *Config) { c.APIServer.MinRequestTimeout = 9_300_000_000 }, `min-request-timeout: "9300000000"`},
		"origins that go on":           {func(c *Config) { c.APIServer.Front.Origins = []string{`https://example\.com`} }, "is not bound to the beginning"},
		"origins that go on in groups": {func(c *Config) { c.APIServer.Front.Origins = []string{`//example\.(?:com|org)`} }, "is not bound to the beginning"},
		"origins that go on twice":     {func(c *Config) { c.APIServer.Front.Origins = []string{"//a|https://b"} }, "is not bound to the beginning"},
		"origins of a scheme alone":    {func(c *Config) { c.APIServer.Front.Origins = []string{`^https:example\.com`} }, "is not bound to the beginning"},
		"events of no size": {func(c *Config) {
			c.APIServer.Audit.LogPath, c.APIServer.Audit.LogTruncate.MaxEvent = "x", 0
		}, `audit-log-truncate-max-event-size: "0"`},
		"batches less than an event": {func(c *Config) {
			c.APIServer.Audit.WebhookConfig, c.APIServer.Audit.WebhookTruncate.MaxBatch = "x", 1
		}, `audit-webhook-truncate-max-event-size`},
		"policies without ABAC":  {func(c *Config) { c.APIServer.AuthorizationPolicy = "x" }, `authorization-policy-file: "x"`},
		"ABAC without policies":  {func(c *Config) { c.APIServer.AuthorizationModes = []string{"RBAC", "ABAC"} }, "authorization-policy-file"},
		"lease of half a second": {func(c *Config) { c.NodeLeaseDuration.Duration = time.Second / 2 }, `node-lease-duration: "500ms"`},
		"an issuer beside the file": {func(c *Config) {
			c.APIServer.Authentication.Config = "x"
			c.APIServer.Authentication.OIDC.Issuer = "https://i"
		}, "authentication-config file and oidc-* flags are mutually exclusive"},
		"an issuer without a client": {func(c *Config) { c.APIServer.Authentication.OIDC.Issuer = "https://i" }, "oidc-issuer-url and oidc-client-id specified together"},
		"a claim without an issuer":  {func(c *Config) { c.APIServer.Authentication.OIDC.UsernameClaim = "x" }, "oidc-issuer-url and oidc-client-id specified together"},
		"a header without a name":    {func(c *Config) { c.APIServer.Authentication.RequestHeader.UsernameHeaders = []string{" "} }, "requestheader-username-headers"},
		"modes beside a file of them": {func(c *Config) {
			c.APIServer.AuthorizationConfig = "x"
			c.APIServer.AuthorizationModes = []string{"RBAC"}
		}, "no --authorization-mode"},
		"a token's issuer without a name": {func(c *Config) { c.APIServer.ServiceAccounts.Issuers = []string{""} }, `service-account-issuer: ""`},
		"a token's issuer that is no URL": {func(c *Config) { c.APIServer.ServiceAccounts.Issuers = []string{"a:b c\x7f"} }, "service-account-issuer"},
		"a token's issuer twice":          {func(c *Config) { c.APIServer.ServiceAccounts.Issuers = []string{"https://a", "https://a"} }, "each issuer once"},
		"keys without TLS":                {func(c *Config) { c.APIServer.ServiceAccounts.JWKSURI = "http://a/keys" }, "service-account-jwks-uri"},
		"tokens of a minute":              {func(c *Config) { c.APIServer.ServiceAccounts.MaxExpiration.Duration = time.Minute }, "between 1 hour and 2^32 seconds"},
		"a store's prefix that is empty":  {func(c *Config) { c.StorePrefix = "" }, `etcd-prefix: ""`},
		"a store's prefix that is all":    {func(c *Config) { c.StorePrefix = "/" }, `etcd-prefix: "/"`},
		"no grace for silent nodes":       {func(c *Config) { c.NodeMonitorGrace.Duration = 0 }, `node-monitor-grace-period: "0s"`},
		"keys beside their signer": {func(c *Config) {
			c.APIServer.ServiceAccounts.SigningEndpoint, c.APIServer.ServiceAccounts.KeyFiles = "/s.sock", []string{"x"}
		}, `service-account-signing-endpoint: "/s.sock"`},
		"audit logs that are kept for less than a day": {func(c *Config) { c.APIServer.Audit.LogMaxAge = -1 }, `audit-log-maxage: "-1"`},
		"less than no old audit logs":                  {func(c *Config) { c.APIServer.Audit.LogMaxBackups = -1 }, `audit-log-maxbackup: "-1"`},
		"audit logs of less than nothing":              {func(c *Config) { c.APIServer.Audit.LogMaxSize = -1 }, `audit-log-maxsize: "-1"`},
		"audit events that are never sent":             {func(c *Config) { c.APIServer.Audit.WebhookBatch.QPS = 0 }, "audit-webhook-batch-throttle-qps"},
		"audit events of which none is sent at once":   {func(c *Config) { c.APIServer.Audit.WebhookBatch.Burst = 0 }, "audit-webhook-batch-throttle-qps"},
	} {
		t.Run(name, func(t *testing.T) {
			c := Default()
			c.NodeName = "node"
			tc.change(&c)
			err := c.Validate()
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
}

func TestTheStoresRootIsAPath(t *testing.T) {
	for given, want := range map[string]string{"/registry": "/registry", "foo": "/foo", "/bar/": "/bar", "a//b": "/a/b", "/x/../y": "/y", "/": ""} {
		c := Config{StorePrefix: given}
		if got := c.StoreRoot(); got != want {
			t.Errorf("%q is %q, want %q", given, got, want)
		}
	}
}

func TestOriginsMustMatchWholeHosts(t *testing.T) {
	for _, origin := range []string{`//example\.com(:|$)`, `^https://example\.com$`, `https://example\.com:8443`, `(^http://a\.org$)|(^https://b\.org$)`, `https://(?:a|b)\.org(:|$)`} {
		c := Default()
		c.NodeName, c.APIServer.Front.Origins = "node", []string{origin}
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", origin, err)
		}
	}
}

func TestGatesMayBeGivenTheirDefaults(t *testing.T) {
	c := Default()
	c.NodeName = "node"
	c.APIServer.FeatureGates = []string{"SidecarContainers=true", "kube:AllAlpha=false", "APIServerIdentity=T", " AllBeta = false"}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

func TestEvictionThresholds(t *testing.T) {
	c := Default()
	if got := c.EvictionThresholds(); got != nil {
		t.Errorf("by default: %v, want nil: the node agent has the defaults", got)
	}
	c.EvictionHard = []string{"memory.available<100Mi", "nodefs.available<5%"}
	if got := c.EvictionThresholds(); len(got) != 2 || got["memory.available"] != "100Mi" || got["nodefs.available"] != "5%" {
		t.Errorf("got %v", got)
	}
}

func TestSomeFeatureGatesCanBeTurnedOn(t *testing.T) {
	for list, want := range map[string]string{
		"": "", "GenericWorkload=true": "GenericWorkload", "kube:GenericWorkload=1 GangScheduling=t": "GangScheduling GenericWorkload",
		"GenericWorkload=true GenericWorkload=false": "", "AllAlpha=false": "",
	} {
		gates := strings.Fields(list)
		c := Default()
		c.NodeName, c.APIServer.FeatureGates = "node", gates
		if err := c.Validate(); err != nil {
			t.Errorf("%s: %v", list, err)
		}
		if got := strings.Join(EnabledGates(gates), " "); got != want {
			t.Errorf("%s turns on %s", list, got)
		}
	}
}
