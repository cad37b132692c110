package definitions

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

const (
	// conversionTimeout is the timeout that the webhook is told, as upstream.
	conversionTimeout = "30s"
	// maxConverted limits a webhook's answer in bytes: an object, and the request, which some
	// webhooks return, too.
	maxConverted = 8 << 20
	// WebhookPort is the default port of a Service.
	WebhookPort = 443
	// webhookAgent is the User-Agent of upstream's API server for webhooks.
	webhookAgent = "kube-apiserver-admission"
)

// webhookClient returns a client for the webhook of a configuration.
type webhookClient func(*apiextensionsv1.WebhookClientConfig) (*http.Client, error)

// Converter calls the conversion webhook of one definition and keeps connections to it.
type Converter struct {
	Client webhookClient

	mu     sync.Mutex // guards the following fields
	made   *http.Client
	closed bool
}

// Call sends a ConversionReview to the webhook of config and returns its answer.
func (c *Converter) Call(ctx context.Context, config *apiextensionsv1.WebhookClientConfig, request []byte) ([]byte, error) {
	client, err := c.connect(config)
	if err != nil {
		return nil, fmt.Errorf("could not get REST client: %w", err)
	}
	defer c.closeIdleIfClosed()
	target, err := webhookURL(config)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, target, bytes.NewReader(request))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", wire.MediaJSON)
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

func (c *Converter) connect(config *apiextensionsv1.WebhookClientConfig) (_ *http.Client, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made == nil {
		c.made, err = c.Client(config)
	}
	return c.made, err
}

// Close ends idle connections. Conversions in progress, such as those of a slow watch, may
// continue; they leave no idle connection.
func (c *Converter) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.closeIdleIfClosed()
}

func (c *Converter) closeIdleIfClosed() {
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
		port := int32(WebhookPort)
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
