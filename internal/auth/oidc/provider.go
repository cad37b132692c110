package oidc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/knarr-project/knarr/internal/auth/jws"
	"github.com/knarr-project/knarr/internal/egress"
)

// provider fetches and holds the keys of one issuer.
type provider struct {
	issuer, discovery string
	http              *http.Client
	log               *slog.Logger
	now               func() time.Time
	metrics           *issuerMetrics

	fetching sync.Mutex // held during a fetch, so that waiting callers share its result

	mu       sync.Mutex // guards the fields below
	keysURL  string     // empty until discovery has succeeded
	keys     []jws.Key
	fetched  int // number of fetches of the keys
	failure  error
	failedAt time.Time // time of the last fetch if it failed
}

const (
	// discoverEvery is the interval of discovery requests until the issuer answers.
	discoverEvery = 10 * time.Second
	// fetchEvery is the pause after a failed fetch of the keys: tokens with unknown keys are cheap
	// to make.
	fetchEvery  = 5 * time.Second
	maxDocument = 1 << 20
)

// newClient returns a client that trusts the given certificates (PEM), or the system's. A nil dial
// connects directly.
func newClient(authorities string, dial egress.Dial) (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if authorities != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(authorities)) {
			return nil, errors.New("oidc: no certificates in certificateAuthority")
		}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = config
	if dial != nil {
		transport.DialContext = dial
	}
	transport.MaxIdleConns, transport.IdleConnTimeout = 1, 30*time.Second
	return &http.Client{Transport: transport, Timeout: 30 * time.Second}, nil
}

func newProvider(issuer, discovery string, client *http.Client, log *slog.Logger, now func() time.Time, m *issuerMetrics) *provider {
	if discovery == "" {
		discovery = strings.TrimSuffix(issuer, "/") + "/.well-known/openid-configuration"
	}
	return &provider{issuer: issuer, discovery: discovery, http: client, log: log, now: now, metrics: m}
}

// run repeats the discovery until it succeeds.
func (p *provider) run(ctx context.Context) {
	for {
		err := p.discover(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		p.log.Error("token issuer does not answer", "issuer", p.issuer, "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(discoverEvery):
		}
	}
}

// discover asks the issuer for the URL of its keys. A failure keeps the known URL.
func (p *provider) discover(ctx context.Context) error {
	url, err := p.askForKeysURL(ctx)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.keysURL = url
	return nil
}

func (p *provider) askForKeysURL(ctx context.Context) (string, error) {
	data, err := fetch(ctx, p.http, p.discovery, "")
	if err != nil {
		return "", fmt.Errorf("oidc: %w", err)
	}
	var document struct {
		Issuer  string `json:"issuer"`
		JWKSURI string `json:"jwks_uri"`
	}
	switch err := json.Unmarshal(data, &document); {
	case err != nil:
		return "", fmt.Errorf("oidc: failed to decode provider discovery object: %w", err)
	case document.Issuer != p.issuer:
		return "", fmt.Errorf("oidc: issuer URL provided to client (%q) did not match the issuer URL returned by provider (%q)", p.issuer, document.Issuer)
	case document.JWKSURI == "":
		return "", fmt.Errorf("oidc: %s has no jwks_uri", p.discovery)
	}
	return document.JWKSURI, nil
}

// ready returns an error while no token of the issuer can be verified.
func (p *provider) ready() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keysURL == "" {
		return fmt.Errorf("oidc: authenticator for issuer %q is not initialized", p.issuer)
	}
	return nil
}

var errSignature = errors.New("failed to verify signature: failed to verify id token signature")

// verify checks the signature with the known keys and, if none matches, with freshly published
// ones: issuers rotate their keys.
func (p *provider) verify(ctx context.Context, t *jws.Parts) error {
	p.mu.Lock()
	keys, count := p.keys, p.fetched
	p.mu.Unlock()
	if signedBy(keys, t) {
		return nil
	}
	keys, err := p.fetchKeys(ctx, count)
	if err != nil {
		return fmt.Errorf("failed to verify signature: fetching keys %w", err)
	}
	if !signedBy(keys, t) {
		return errSignature
	}
	return nil
}

func signedBy(keys []jws.Key, t *jws.Parts) bool {
	return slices.ContainsFunc(keys, func(k jws.Key) bool {
		return (t.Header.KeyID == "" || k.ID == t.Header.KeyID) && (k.Algorithm == "" || k.Algorithm == t.Header.Algorithm) &&
			t.SignedBy(k.Public)
	})
}

// fetchKeys fetches the issuer's keys. It returns the known keys if another caller has fetched them
// since the count seen, and the last error if a fetch failed a moment ago.
func (p *provider) fetchKeys(ctx context.Context, seen int) ([]jws.Key, error) {
	p.fetching.Lock()
	defer p.fetching.Unlock()
	p.mu.Lock()
	url, keys, count, failure, failedAt := p.keysURL, p.keys, p.fetched, p.failure, p.failedAt
	p.mu.Unlock()
	switch {
	case count != seen:
		return keys, nil
	case failure != nil && p.now().Sub(failedAt) < fetchEvery:
		return nil, failure
	}
	keys, document, err := fetchSet(ctx, p.http, url)
	if err != nil && ctx.Err() != nil {
		return nil, err // the caller is gone; that says nothing about the issuer
	}
	p.metrics.fetchedKeys(document, err, p.now())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failure, p.failedAt = err, p.now()
	if err != nil {
		return nil, err
	}
	p.keys, p.fetched = keys, count+1
	return keys, nil
}

func fetchSet(ctx context.Context, client *http.Client, url string) (keys []jws.Key, document []byte, err error) {
	if document, err = fetch(ctx, client, url, ""); err != nil {
		return nil, nil, err
	}
	keys, err = jws.ParseKeys(document)
	return keys, document, err
}

func fetch(ctx context.Context, client *http.Client, url, token string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, &statusError{url, resp.Status}
	}
	return data, nil
}

// statusError is an answer other than 200.
type statusError struct{ url, status string }

func (e *statusError) Error() string { return fmt.Sprintf("%s answers %s", e.url, e.status) }
