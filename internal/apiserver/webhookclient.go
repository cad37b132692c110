package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"net/url"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/knarr-project/knarr/internal/apiserver/definitions"
)

// webhookClient returns a client that trusts the configured certificate authority, and resolves
// Services itself.
func (s *Server) webhookClient(config *apiextensionsv1.WebhookClientConfig) (*http.Client, error) {
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(config.CABundle) > 0 {
		secure.RootCAs = x509.NewCertPool()
		if !secure.RootCAs.AppendCertsFromPEM(config.CABundle) {
			return nil, errors.New("unable to load root certificates: unable to parse bytes as PEM block")
		}
	}
	direct := (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}).DialContext
	transport := &http.Transport{DialContext: direct, TLSClientConfig: secure, TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout: 90 * time.Second, MaxIdleConnsPerHost: 8, Proxy: http.ProxyFromEnvironment}
	if service := config.Service; service != nil {
		port := int32(definitions.WebhookPort)
		if service.Port != nil {
			port = *service.Port
		}
		secure.ServerName = service.Name + "." + service.Namespace + ".svc"
		transport.Proxy = nil
		dial := s.cfg.Egress.ServiceWebhook(service.Namespace, service.Name, port, direct)
		transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			address, err := s.routes.Resolve(ctx, service.Namespace, service.Name, port)
			if err != nil {
				return nil, err
			}
			return dial(ctx, network, address)
		}
	} else if config.URL != nil { // webhookURL reports errors in either
		if u, err := url.Parse(*config.URL); err == nil {
			transport.DialContext = s.cfg.Egress.Webhook(u.Host, direct)
		}
	}
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}
