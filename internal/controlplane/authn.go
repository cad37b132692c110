package controlplane

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"time"

	apiserverconfig "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/client-go/util/cert"

	"github.com/knarr-project/knarr/internal/apiserver"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/auth/oidc"
	"github.com/knarr-project/knarr/internal/auth/pki"
	"github.com/knarr-project/knarr/internal/auth/signer"
	"github.com/knarr-project/knarr/internal/auth/token"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/process"
	"github.com/knarr-project/knarr/internal/reload"
)

// follow opens a configuration file whose later changes are applied, and exposes its metrics.
func (s *Server) follow(ctx context.Context, what, path string, apply func(ctx context.Context, data []byte) error) error {
	f, err := reload.Open(ctx, what, path, s.log.With("component", "apiserver"), apply)
	if err != nil {
		return err
	}
	s.api.Register(f.Collectors()...)
	s.files = append(s.files, f)
	return nil
}

// followFiles applies changes of the files until ctx ends.
func (s *Server) followFiles(ctx context.Context) error {
	parts := make([]func(context.Context) error, 0, len(s.files))
	for _, f := range s.files {
		parts = append(parts, process.Part(f.Run))
	}
	return process.Alongside(ctx, parts...)
}

// serviceAccountTokens returns the service that issues and checks service account tokens.
func (s *Server) serviceAccountTokens(ctx context.Context) (*token.Service, error) {
	c := &s.cfg.APIServer.ServiceAccounts
	keys, err := s.keys.ServiceAccount.Keys().With(c.SigningKeyFile, c.KeyFiles)
	if err != nil {
		return nil, err
	}
	most := c.MaxExpiration.Duration
	if c.SigningEndpoint != "" {
		if s.signer, err = signer.Connect(ctx, c.SigningEndpoint, s.log.With("component", "apiserver")); err != nil {
			return nil, err
		}
		context.AfterFunc(ctx, s.signer.Close)
		if keys = nil; most > s.signer.MaxExpiration {
			return nil, fmt.Errorf("service-account-max-token-expiration cannot be set longer than the token expiration supported by service-account-signing-endpoint: %s > %s", most, s.signer.MaxExpiration)
		}
		most = cmp.Or(most, s.signer.MaxExpiration)
		s.api.Register(s.signer.Collectors()...)
	}
	issuers := c.Issuers
	if len(issuers) == 0 {
		issuers = []string{"https://kubernetes.default.svc." + s.cfg.ClusterDomain}
	}
	return token.New(ctx, token.Config{
		Issuer: issuers[0], AcceptedIssuers: issuers[1:], Audiences: c.Audiences, JWKSURI: c.JWKSURI, Keys: keys, Client: s.own(),
		MaxExpiration: most, KeepExpiration: !c.ExtendExpiration, External: s.signer, Now: s.clock.Now,
	})
}

// issuers returns the external token issuers, and the rules for requests without credentials.
func (s *Server) issuers(ctx context.Context, audiences, own []string) (*oidc.Tokens, auth.Anonymity, error) {
	c := &s.cfg.APIServer.Authentication
	anonymity, why := s.anonymityOfFlags()
	options := oidc.Options{Audiences: audiences, Disallowed: own, Egress: s.egress, Log: s.log.With("component", "apiserver")}
	if c.Config == "" && c.OIDC.Set() {
		options.Algorithms = c.OIDC.SigningAlgs
	}
	tokens, err := oidc.New(ctx, options)
	if err != nil {
		return nil, anonymity, err
	}
	s.api.Register(tokens.Collectors()...)
	switch {
	case c.Config != "":
		var first *oidc.Configuration
		err = s.follow(ctx, "authentication", c.Config, func(ctx context.Context, data []byte) error {
			config, err := readAuthentication(c.Config, data)
			if err != nil {
				return err
			}
			if first != nil {
				if !reflect.DeepEqual(config.Anonymous, first.Anonymous) {
					return errors.New("anonymous: Forbidden: changed from initial configuration file")
				}
				return tokens.Use(ctx, config, true)
			}
			first = config
			return tokens.Use(ctx, config, false)
		})
		if err == nil && first.Anonymous != nil {
			if c.Anonymous != nil {
				return nil, anonymity, errors.New("anonymous: Forbidden: --anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file")
			}
			anonymity, why = anonymityOf(first.Anonymous), ""
		}
	case c.OIDC.Set():
		var config *oidc.Configuration
		if config, err = oidcFlags(&c.OIDC).Configuration(); err == nil {
			err = oidc.Validate(config)
		}
		if err == nil {
			err = tokens.Use(ctx, config, false)
		}
	}
	if why != "" {
		s.log.Warn(why, "component", "apiserver")
	}
	return tokens, anonymity, err
}

func readAuthentication(path string, data []byte) (*oidc.Configuration, error) {
	config, err := oidc.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("failed to load authentication configuration from file %q: %w", path, err)
	}
	return config, oidc.Validate(config)
}

// anonymityOfFlags allows requests without credentials, unless every request would be authorized.
// why explains a refusal.
func (s *Server) anonymityOfFlags() (a auth.Anonymity, why string) {
	c := &s.cfg.APIServer
	if c.Authentication.Anonymous != nil && !*c.Authentication.Anonymous {
		return a, ""
	}
	if c.AuthorizationConfig == "" && slices.Contains(c.AuthorizationModes, "AlwaysAllow") {
		return a, "requests without credentials are refused, since --authorization-mode=AlwaysAllow would let them do everything"
	}
	return auth.Anonymity{Allowed: true}, ""
}

func anonymityOf(c *apiserverconfig.AnonymousAuthConfig) auth.Anonymity {
	a := auth.Anonymity{Allowed: c.Enabled}
	for _, condition := range c.Conditions {
		a.Paths = append(a.Paths, condition.Path)
	}
	return a
}

func oidcFlags(c *config.OIDC) *oidc.Flags {
	return &oidc.Flags{
		Issuer: c.Issuer, ClientID: c.ClientID, CAFile: c.CA, UsernameClaim: c.UsernameClaim, UsernamePrefix: c.UsernamePrefix,
		GroupsClaim: c.GroupsClaim, GroupsPrefix: c.GroupsPrefix, RequiredClaims: c.RequiredClaims,
	}
}

// ownProxy is the name by which this server authenticates to extension servers, and other servers
// of the cluster to this one.
const ownProxy = "front-proxy-client"

// proxies returns the trusted front proxies: the cluster's own servers, and those of the flags.
func (s *Server) proxies() (auth.Authenticators, apiserver.Trust, error) {
	trust := apiserver.Trust{
		ClientCA: func() []byte { return s.clients.pem() }, FrontProxyCA: s.keys.FrontProxyCA.Bundle, FrontProxyNames: []string{ownProxy}, Headers: auth.RemoteHeaders,
		Removed: func(c *x509.Certificate) bool { return s.rotation != nil && s.rotation.Removed(pki.CertificateHash(c)) },
	}
	all := auth.Authenticators{auth.FrontProxy{Roots: s.keys.FrontProxyCA.Pool, Names: trust.FrontProxyNames, Headers: trust.Headers, Now: s.keyClock().Now}}
	h := &s.cfg.APIServer.Authentication.RequestHeader
	if h.ClientCA == "" {
		return all, trust, nil
	}
	authorities, err := os.ReadFile(h.ClientCA)
	if err != nil {
		return nil, trust, err
	}
	if s.proxyAuthorities, err = cert.ParseCertsPEM(authorities); err != nil {
		return nil, trust, fmt.Errorf("requestheader-client-ca-file %s: %w", h.ClientCA, err)
	}
	if err := s.disjoint(s.keys.CA.Certificates()); err != nil {
		return nil, trust, err
	}
	roots := x509.NewCertPool()
	for _, c := range s.proxyAuthorities {
		roots.AddCert(c)
	}
	headers := auth.FrontProxyHeaders{User: h.UsernameHeaders, UID: h.UIDHeaders, Group: h.GroupHeaders, ExtraPrefix: h.ExtraHeaderPrefixes}
	all = append(all, auth.FrontProxy{Roots: func() *x509.CertPool { return roots }, Names: h.AllowedNames, Headers: headers, Now: time.Now})

	// Extension servers must trust this server in addition to the proxies.
	trust.FrontProxyCA = func() []byte { return slices.Concat(authorities, []byte("\n"), s.keys.FrontProxyCA.Bundle()) }
	if len(h.AllowedNames) == 0 {
		trust.FrontProxyNames = nil // any name
	} else {
		trust.FrontProxyNames = union(h.AllowedNames, trust.FrontProxyNames)
	}
	trust.Headers = auth.FrontProxyHeaders{
		User: union(headers.User, trust.Headers.User), UID: union(headers.UID, trust.Headers.UID),
		Group: union(headers.Group, trust.Headers.Group), ExtraPrefix: union(headers.ExtraPrefix, trust.Headers.ExtraPrefix),
	}
	return all, trust, nil
}

func union(a, b []string) []string {
	out := slices.Clone(a)
	for _, s := range b {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
