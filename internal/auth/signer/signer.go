// Package signer is the client of an external signer (KEP-740): a process on this machine that
// signs service account tokens instead of the API server, holds the keys, and lists the valid ones.
// The protocol is k8s.io/externaljwt.
package signer

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	externaljwt "k8s.io/externaljwt/apis/v1"
)

// reconnect makes a restarted signer usable again quickly; it is on this machine.
var reconnect = backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second}

const (
	// patience limits one request to the signer.
	patience = 30 * time.Second
	// retryAfter is the delay before a failed fetch of the keys is repeated.
	retryAfter = 10 * time.Second
	// minLifetime is a lifetime that every signer has to allow, since clients may request it.
	minLifetime = 10 * time.Minute
	// maxLifetime is the longest lifetime that a client can request, in seconds. A signer
	// without a limit may return any number.
	maxLifetime = 1 << 32
	// maxKeyIDLength is the limit of a key's name in bytes.
	maxKeyIDLength = 1024
	// maxRefresh limits the refresh hint of a signer.
	maxRefresh = 24 * time.Hour
)

// Key is a key that tokens may be signed with.
type Key struct {
	ID     string
	Public crypto.PublicKey
	// Unpublished keys are not listed for outside verifiers, and may not sign new tokens.
	Unpublished bool
}

// Keys holds the keys that are valid at a time. It is never modified.
type Keys struct {
	All []Key
	// Refresh is the time after which the keys may have changed.
	Refresh time.Duration
	read    time.Time
}

// Same reports whether both have the same keys; other may be nil.
func (k *Keys) Same(other *Keys) bool {
	return slices.EqualFunc(k.All, other.All, func(a, b Key) bool {
		public, ok := a.Public.(interface{ Equal(crypto.PublicKey) bool })
		return a.ID == b.ID && a.Unpublished == b.Unpublished && ok && public.Equal(b.Public)
	})
}

// Left returns the rest of Refresh.
func (k *Keys) Left(now time.Time) time.Duration { return max(0, k.read.Add(k.Refresh).Sub(now)) }

// Signer is a connection to the process. Safe for concurrent use.
type Signer struct {
	// MaxExpiration is the longest lifetime of a token that the signer allows.
	MaxExpiration time.Duration

	conn    *grpc.ClientConn
	client  externaljwt.ExternalJWTSignerClient
	log     *slog.Logger
	keys    atomic.Pointer[Keys]
	fetches singleflight.Group
	metrics metrics
}

// Connect reads the limits and the keys of the process at the socket. Run keeps the keys up to
// date.
func Connect(ctx context.Context, socket string, log *slog.Logger) (*Signer, error) {
	s := &Signer{log: log, metrics: newMetrics()}
	var err error
	s.conn, err = grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithUnaryInterceptor(s.metrics.timed),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: reconnect, MinConnectTimeout: patience}))
	if err == nil {
		s.client = externaljwt.NewExternalJWTSignerClient(s.conn)
		err = s.readMetadata(ctx)
	}
	if err != nil {
		s.Close()
		return nil, fmt.Errorf("service account signer at %s: %w", socket, err)
	}
	return s, nil
}

// Close ends the connection.
func (s *Signer) Close() {
	if s.conn != nil {
		_ = s.conn.Close()
	}
}

func (s *Signer) readMetadata(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	about, err := s.client.Metadata(asking, &externaljwt.MetadataRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	s.MaxExpiration = time.Duration(min(about.MaxTokenExpirationSeconds, maxLifetime)) * time.Second
	if s.MaxExpiration < minLifetime {
		return fmt.Errorf("max token life supported by external-jwt-signer (%ds) is less than acceptable (min %ds)", about.MaxTokenExpirationSeconds, int(minLifetime.Seconds()))
	}
	return s.Fetch(ctx)
}

// Keys returns the keys of the last fetch.
func (s *Signer) Keys() *Keys { return s.keys.Load() }

// Fetch fetches the keys now. Concurrent callers share a request. An unusable answer changes
// nothing. Fetch does not wait for a signer that is away.
func (s *Signer) Fetch(ctx context.Context) error {
	done := s.fetches.DoChan("", func() (any, error) {
		// Other callers wait for this request too.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
		defer cancel()
		err := s.fetch(ctx)
		s.metrics.fetches.WithLabelValues(code(err)).Inc()
		return nil, err
	})
	var err error
	select {
	case r := <-done:
		err = r.Err
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("fetch keys: %w", err)
	}
	return nil
}

func (s *Signer) fetch(ctx context.Context) error {
	answer, err := s.client.FetchKeys(ctx, &externaljwt.FetchKeysRequest{})
	if err != nil {
		return err
	}
	now := time.Now()
	keys, err := read(answer, now, s.log)
	if err != nil {
		return err
	}
	s.keys.Store(keys)
	s.metrics.fetched(answer.DataTimestamp.AsTime(), now)
	return nil
}

// read validates an answer by the rules of the protocol.
func read(answer *externaljwt.FetchKeysResponse, now time.Time, log *slog.Logger) (*Keys, error) {
	if err := answer.DataTimestamp.CheckValid(); err != nil {
		return nil, fmt.Errorf("invalid data timestamp: %w", err)
	}
	if answer.RefreshHintSeconds <= 0 {
		return nil, fmt.Errorf("found invalid refresh hint (%ds)", answer.RefreshHintSeconds)
	}
	if len(answer.Keys) == 0 {
		return nil, errors.New("found no keys")
	}
	keys := &Keys{Refresh: maxRefresh, read: now}
	if answer.RefreshHintSeconds < int64(maxRefresh/time.Second) {
		keys.Refresh = time.Duration(answer.RefreshHintSeconds) * time.Second
	}
	for i, k := range answer.Keys {
		if k.KeyId == "" || len(k.KeyId) > maxKeyIDLength {
			return nil, fmt.Errorf("found invalid public key id %q", k.KeyId)
		}
		public, err := x509.ParsePKIXPublicKey(k.Key)
		if err != nil {
			return nil, fmt.Errorf("public key %d %q: %w", i, k.KeyId, err)
		}
		if !usable(public) {
			log.Warn("ignoring a key of the external signer: it is neither RSA nor ECDSA of P-256, P-384 or P-521", "kid", k.KeyId, "type", fmt.Sprintf("%T", public))
			continue
		}
		keys.All = append(keys.All, Key{ID: k.KeyId, Public: public, Unpublished: k.ExcludeFromOidcDiscovery})
	}
	if len(keys.All) == 0 {
		return nil, errors.New("found no keys of RSA, or ECDSA of P-256, P-384 or P-521")
	}
	return keys, nil
}

func usable(public crypto.PublicKey) bool {
	switch k := public.(type) {
	case *rsa.PublicKey:
		return true
	case *ecdsa.PublicKey:
		return k.Curve == elliptic.P256() || k.Curve == elliptic.P384() || k.Curve == elliptic.P521()
	}
	return false
}

// Run fetches the keys whenever they may have changed, until ctx ends.
func (s *Signer) Run(ctx context.Context) {
	wait := s.Keys().Refresh
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if err := s.Fetch(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("cannot refresh the keys of service account tokens", "error", err)
			wait = min(retryAfter, s.Keys().Refresh)
			continue
		}
		wait = s.Keys().Refresh
	}
}

// header is the complete set of allowed fields in a token's header.
type header struct {
	Algorithm string `json:"alg"`
	KeyID     string `json:"kid"`
	Type      string `json:"typ"`
}

// algorithms are the algorithms allowed for signers.
var algorithms = map[string]bool{"RS256": true, "ES256": true, "ES384": true, "ES512": true}

// Sign returns a token with the claims, a JSON object.
func (s *Signer) Sign(ctx context.Context, claims []byte) (token string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	payload := base64.RawURLEncoding.EncodeToString(claims)
	defer func() { s.metrics.signs.WithLabelValues(code(err)).Inc() }()
	// Waits for a signer that is restarting.
	signed, err := s.client.Sign(ctx, &externaljwt.SignJWTRequest{Claims: payload}, grpc.WaitForReady(true))
	if err != nil {
		return "", fmt.Errorf("while signing jwt: %w", err)
	}
	h, err := readHeader(signed.Header)
	if err == nil && s.unpublished(ctx, h.KeyID) {
		err = fmt.Errorf("key used for signing JWT (kid: %s) is excluded from OIDC discovery docs", h.KeyID)
	}
	if err != nil {
		return "", fmt.Errorf("while validating header: %w", err)
	}
	if signed.Signature == "" {
		return "", errors.New("empty signature returned")
	}
	return signed.Header + "." + payload + "." + signed.Signature, nil
}

// unpublished reports whether the key, or another key of the same name, is unpublished. If the key
// is unknown, it first fetches the keys, since it may be new.
func (s *Signer) unpublished(ctx context.Context, id string) bool {
	named := func(k Key) bool { return k.ID == id }
	if !slices.ContainsFunc(s.Keys().All, named) {
		_ = s.Fetch(ctx) // after an error the key stays unknown, and no verifier accepts it
	}
	return slices.ContainsFunc(s.Keys().All, func(k Key) bool { return named(k) && k.Unpublished })
}

func readHeader(encoded string) (h header, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		return h, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&h); err != nil {
		return h, fmt.Errorf("while parsing header JSON: %w", err)
	}
	switch {
	case d.Decode(&struct{}{}) != io.EOF:
		return h, errors.New("while parsing header JSON: data after the object")
	case h.Type != "JWT":
		return h, errors.New("bad type")
	case !algorithms[h.Algorithm]:
		return h, fmt.Errorf("bad signing algorithm %q", h.Algorithm)
	case h.KeyID == "":
		return h, errors.New("key id missing")
	case len(h.KeyID) > maxKeyIDLength:
		return h, fmt.Errorf("key id of %d characters, at most %d", len(h.KeyID), maxKeyIDLength)
	}
	return h, nil
}
