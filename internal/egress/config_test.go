package egress_test

import (
	"encoding/pem"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/internal/egress"
)

const head = "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\n"

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// one returns a configuration with one selection.
func one(name, connection string) string {
	return head + fmt.Sprintf("egressSelections:\n- {name: %s, connection: {%s}}\n", name, connection)
}

func TestConfigurationsAreAcceptedOrRefusedLikeUpstream(t *testing.T) {
	exists := file(t, "exists", "no PEM")
	secure := func(fields string) string {
		return one("cluster", "proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://127.0.0.1:8131', tlsConfig: {"+fields+"}}}")
	}
	const (
		unread  = "failed to read egress selector config: "
		invalid = "failed to validate egress selector configuration: "
		unmade  = "failed to setup egress selector with config "
	)
	for name, tc := range map[string]struct{ text, want string }{
		"nothing is selected":     {head, ""},
		"direct":                  {one("cluster", "proxyProtocol: Direct"), ""},
		"v1alpha1":                {strings.Replace(one("etcd", "proxyProtocol: Direct"), "v1beta1", "v1alpha1", 1), ""},
		"names in any case":       {one("ControlPlane", "proxyProtocol: Direct"), ""},
		"CONNECT by a socket":     {one("cluster", "proxyProtocol: HTTPConnect, transport: {uds: {udsName: /x}}"), ""},
		"CONNECT without TLS":     {one("cluster", "proxyProtocol: HTTPConnect, transport: {tcp: {url: 'http://127.0.0.1:1'}}"), ""},
		"GRPC by a socket":        {one("cluster", "proxyProtocol: GRPC, transport: {uds: {udsName: /x}}"), ""},
		"no YAML":                 {"{{", unread + "couldn't get version/kind"},
		"v1":                      {strings.Replace(head, "k8s.io/v1beta1", "config.k8s.io/v1", 1), unread + `no kind "EgressSelectorConfiguration" is registered for version "apiserver.config.k8s.io/v1"`},
		"another kind":            {"apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n", unread + "unexpected config type: apiserver.config.k8s.io/v1, Kind=TracingConfiguration"},
		"an unknown field":        {head + "foo: 1\n", unread + `strict decoding error: unknown field "foo"`},
		"a field twice":           {head + "egressSelections: []\negressSelections: []\n", unread + "strict decoding error: yaml: unmarshal errors:"},
		"a name of no network":    {one("nodes", "proxyProtocol: Direct"), invalid + `service.connection: Unsupported value: "nodes": supported values: "cluster", "controlplane", "etcd"`},
		"a name twice":            {one("cluster", "proxyProtocol: Direct") + "- {name: Cluster, connection: {proxyProtocol: Direct}}\n", invalid + `service.connection[1]: Duplicate value: "cluster"`},
		"no protocol":             {one("cluster", ""), invalid + `service.connection.protocol: Unsupported value: "": supported values: "Direct", "HTTPConnect", "GRPC"`},
		"direct by something":     {one("cluster", "proxyProtocol: Direct, transport: {uds: {udsName: /x}}"), invalid + `service.connection.transport: Invalid value: "direct": config must be absent for direct connect`},
		"CONNECT by nothing":      {one("cluster", "proxyProtocol: HTTPConnect"), invalid + "service.connection.transport: Required value: transport must be set for HTTPConnect"},
		"CONNECT by no transport": {one("cluster", "proxyProtocol: HTTPConnect, transport: {}"), invalid + "service.connection.tcp: Required value: One of TCP or UDS must be set"},
		"CONNECT by both":         {one("cluster", "proxyProtocol: HTTPConnect, transport: {tcp: {url: 'http://x'}, uds: {udsName: /x}}"), "TCP and UDS cannot both be set"},
		"a socket of no name":     {one("cluster", "proxyProtocol: HTTPConnect, transport: {uds: {}}"), invalid + `service.connection.udsName: Invalid value: "nil": must be present for UDS connections`},
		"a URL of no scheme":      {one("cluster", "proxyProtocol: HTTPConnect, transport: {tcp: {url: 'x:1'}}"), invalid + `service.connection.url: Invalid value: "x:1": supported connection protocols are http:// and https://`},
		"TLS for HTTP":            {one("cluster", "proxyProtocol: HTTPConnect, transport: {tcp: {url: 'http://x:1', tlsConfig: {}}}"), invalid + `service.connection.tlsConfig: Invalid value: "nil": config must not be present when using HTTP`},
		"no TLS for HTTPS":        {one("cluster", "proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://x:1'}}"), invalid + "service.connection.tlsConfig: Required value: TLSConfig must be present when using HTTPS"},
		"no certificate":          {secure("clientKey: " + exists), invalid + `service.connection.tlsConfig.clientCert: Invalid value: "nil": Using TLS requires clientCert`},
		"no key":                  {secure("clientCert: " + exists), invalid + `service.connection.tlsConfig.clientKey: Invalid value: "nil": Using TLS requires requires clientKey`},
		"a missing bundle":        {secure("caBundle: /none, clientCert: " + exists + ", clientKey: " + exists), invalid + `service.connection.tlsConfig.caBundle: Invalid value: "/none": TLS config ca bundle does not exist`},
		"a missing key":           {secure("clientCert: " + exists + ", clientKey: /none"), invalid + `service.connection.tlsConfig.clientKey: Invalid value: "/none": TLS client key does not exist`},
		"an invalid pair":         {secure("clientCert: " + exists + ", clientKey: " + exists), unmade},
		"an invalid URL":          {one("cluster", "proxyProtocol: HTTPConnect, transport: {tcp: {url: 'http://[x'}}"), `failed to create dialer for egressSelection "cluster": invalid proxy server url "http://[x"`},
		"GRPC by nothing":         {one("cluster", "proxyProtocol: GRPC"), invalid + "service.connection.transport: Required value: transport must be set for GRPC"},
		"GRPC by TCP":             {one("cluster", "proxyProtocol: GRPC, transport: {tcp: {url: 'http://x:1'}}"), invalid + "service.connection.uds: Required value: UDS must be set with GRPC"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := egress.Load(file(t, "egress.yaml", tc.text))
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%v, want %s", err, tc.want)
			}
		})
	}
}

func TestMissingFilesAreErrors(t *testing.T) {
	if s, err := egress.Load(""); s != nil || err != nil {
		t.Errorf("no file gives %v, %v", s, err)
	}
	const want = `failed to read egress selector config: unable to read egress selector configuration from "/none" [open /none: no such file or directory]`
	if _, err := egress.Load("/none"); err == nil || err.Error() != want {
		t.Error(err)
	}
}

func TestABundleWithoutCertificatesIsRefused(t *testing.T) {
	certificate, key := pair(t)
	text := one("cluster", fmt.Sprintf("proxyProtocol: HTTPConnect, transport: {tcp: {url: 'https://x:1', tlsConfig: {caBundle: %s, clientCert: %s, clientKey: %s}}}", key, certificate, key))
	if _, err := egress.Load(file(t, "egress.yaml", text)); err == nil || !strings.Contains(err.Error(), "failed to append CA cert to the cert pool") {
		t.Error(err)
	}
}

func TestTheControlPlanesOldNameIsAccepted(t *testing.T) {
	if s := load(t, one("master", "proxyProtocol: Direct")); s.To(egress.ControlPlane) == nil {
		t.Error("master is not the control plane")
	}
}

func TestUnselectedNetworksAreDialedDirectly(t *testing.T) {
	s, err := egress.Load(file(t, "egress.yaml", one("cluster", "proxyProtocol: Direct")))
	if err != nil {
		t.Fatal(err)
	}
	if s.To(egress.Cluster) == nil || s.To(egress.ControlPlane) != nil || s.To(egress.Etcd) != nil {
		t.Error("one network has a way")
	}
	var none *egress.Selector
	if none.To(egress.Cluster) != nil || none.Collectors() != nil {
		t.Error("no file has a say")
	}
}

// pair writes a self-signed certificate and its key, and returns their paths.
func pair(t *testing.T) (certificate, key string) {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	own := server.TLS.Certificates[0]
	return file(t, "crt", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: own.Certificate[0]}))),
		file(t, "key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyBytes(t, own.PrivateKey)})))
}
