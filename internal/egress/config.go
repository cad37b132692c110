package egress

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	apiserverconfig "k8s.io/apiserver/pkg/apis/apiserver"
	upstream "k8s.io/apiserver/pkg/server/egressselector"
)

// Network is a kind of destination.
type Network string

// The networks that a configuration may name.
const (
	ControlPlane Network = "controlplane"
	Etcd         Network = "etcd"
	Cluster      Network = "cluster"
)

// Load reads the Selector from a file. It returns nil if path is empty or the file selects nothing.
// Errors have upstream's texts.
func Load(path string) (*Selector, error) {
	config, err := upstream.ReadEgressSelectorConfiguration(path)
	if err != nil {
		return nil, fmt.Errorf("failed to read egress selector config: %w", err)
	}
	if errs := upstream.ValidateEgressSelectorConfiguration(config); len(errs) > 0 {
		return nil, fmt.Errorf("failed to validate egress selector configuration: %w", errs.ToAggregate())
	}
	if config == nil || config.EgressSelections == nil {
		return nil, nil
	}
	s := &Selector{dialers: map[Network]Dial{}, metrics: newMetrics()}
	for i := range config.EgressSelections {
		one := &config.EgressSelections[i]
		name := Network(strings.ToLower(one.Name))
		dial, err := s.dialer(&one.Connection)
		if err != nil {
			return nil, fmt.Errorf("failed to setup egress selector with config %s: failed to create dialer for egressSelection %q: %w", path, name, err)
		}
		s.dialers[name] = dial
	}
	return s, nil
}

// dialer returns the dial function of a validated connection.
func (s *Selector) dialer(c *apiserverconfig.Connection) (Dial, error) {
	if c.ProxyProtocol == apiserverconfig.ProtocolDirect {
		return (&net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second}).DialContext, nil
	}
	if uds := c.Transport.UDS; uds != nil {
		if c.ProxyProtocol == apiserverconfig.ProtocolGRPC {
			return s.counted(&tunnel{socket: uds.UDSName}, labels{"grpc", "uds"}), nil
		}
		return s.counted(&connect{network: "unix", address: uds.UDSName}, labels{"http_connect", "uds"}), nil
	}
	where, err := url.Parse(c.Transport.TCP.URL)
	if err != nil {
		return nil, fmt.Errorf("invalid proxy server url %q: %w", c.Transport.TCP.URL, err)
	}
	proxy := &connect{network: "tcp", address: where.Host}
	if where.Scheme == "https" {
		if proxy.secure, err = secured(c.Transport.TCP.TLSConfig, where.Hostname()); err != nil {
			return nil, err
		}
	}
	return s.counted(proxy, labels{"http_connect", "tcp"}), nil
}

// secured builds the TLS configuration for the proxy: the client certificate to show, and the CA
// bundle to trust (default: the system's).
func secured(c *apiserverconfig.TLSConfig, host string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(c.ClientCert, c.ClientKey)
	if err != nil {
		return nil, fmt.Errorf("failed to read key pair %s & %s, got %w", c.ClientCert, c.ClientKey, err)
	}
	out := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}, ServerName: host}
	if c.TLSServerName != "" {
		out.ServerName = c.TLSServerName
	}
	if c.CABundle == "" {
		return out, nil
	}
	bundle, err := os.ReadFile(c.CABundle)
	if err != nil {
		return nil, fmt.Errorf("failed to read cert file %s, got %w", c.CABundle, err)
	}
	out.RootCAs = x509.NewCertPool()
	if !out.RootCAs.AppendCertsFromPEM(bundle) {
		return nil, fmt.Errorf("failed to append CA cert to the cert pool: %s holds no certificate", c.CABundle)
	}
	return out, nil
}
