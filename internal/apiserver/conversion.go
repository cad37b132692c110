package apiserver

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

const (
	// conversionTimeout is the timeout that the webhook is told, as upstream.
	conversionTimeout = "30s"
	// maxConverted limits a webhook's answer in bytes: an object, and the request, which some
	// webhooks return, too.
	maxConverted = 8 << 20
	// webhookPort is the default port of a Service.
	webhookPort = 443
	// webhookAgent is the User-Agent of upstream's API server for webhooks.
	webhookAgent = "kube-apiserver-admission"
)

// webhookClient makes the client that asks the webhook of a configuration.
type webhookClient func(*apiextensionsv1.WebhookClientConfig) (*http.Client, error)

// converter calls the conversion webhook of one definition and keeps connections to it.
type converter struct {
	client webhookClient

	mu     sync.Mutex // guards the following fields
	made   *http.Client
	closed bool
}

func (c *converter) call(ctx context.Context, config *apiextensionsv1.WebhookClientConfig, request []byte) ([]byte, error) {
	client, err := c.connect(config)
	if err != nil {
		return nil, fmt.Errorf("could not get REST client: %w", err)
	}
	defer c.tidy()
	target, err := webhookURL(config)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(request))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", mediaJSON)
	r.Header.Set("Accept", "application/json, */*")
	r.Header.Set("User-Agent", webhookAgent)
	response, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxConverted+1))
	if err != nil {
		return nil, err
	}
	if len(body) > maxConverted {
		return nil, fmt.Errorf("the answer is larger than %d bytes", maxConverted)
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return nil, fmt.Errorf("the server responded with %d: %s", response.StatusCode, strings.TrimSpace(string(body[:min(len(body), 256)])))
	}
	if len(body) == 0 {
		return nil, fmt.Errorf("0-length response with status code: %d and content type: %s", response.StatusCode, response.Header.Get("Content-Type"))
	}
	return body, nil
}

func (c *converter) connect(config *apiextensionsv1.WebhookClientConfig) (_ *http.Client, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made == nil {
		c.made, err = c.client(config)
	}
	return c.made, err
}

// close ends idle connections. Conversions in progress, such as those of a slow watch, may
// continue; they leave no idle connection.
func (c *converter) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.tidy()
}

func (c *converter) tidy() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed && c.made != nil {
		c.made.CloseIdleConnections()
	}
}

// webhookURL returns the webhook's URL. That of a Service is NAME.NAMESPACE.svc, which is also the
// name in its certificate.
func webhookURL(config *apiextensionsv1.WebhookClientConfig) (string, error) {
	var u *url.URL
	switch s := config.Service; {
	case s != nil:
		port := int32(webhookPort)
		if s.Port != nil {
			port = *s.Port
		}
		u = &url.URL{Scheme: "https", Host: net.JoinHostPort(s.Name+"."+s.Namespace+".svc", strconv.Itoa(int(port)))}
		if s.Path != nil {
			u.Path = *s.Path
		}
	case config.URL != nil:
		var err error
		if u, err = url.Parse(*config.URL); err != nil {
			return "", err
		}
	default:
		return "", errors.New("webhook configuration must have either service or URL")
	}
	u.RawQuery = url.Values{"timeout": {conversionTimeout}}.Encode()
	return u.String(), nil
}

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
		port := int32(webhookPort)
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
