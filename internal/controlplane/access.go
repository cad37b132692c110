package controlplane

import (
	"context"
	"fmt"
	"slices"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/admission/measure"
	"github.com/knarr-project/knarr/internal/admission/policy"
	"github.com/knarr-project/knarr/internal/admission/webhook"
	"github.com/knarr-project/knarr/internal/apiserver"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/auth/abac"
	"github.com/knarr-project/knarr/internal/auth/node"
	"github.com/knarr-project/knarr/internal/auth/rbac"
	"github.com/knarr-project/knarr/internal/auth/token"
	authwebhook "github.com/knarr-project/knarr/internal/auth/webhook"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/egress"
)

// secure builds authentication, authorization and admission. They read through the server's own
// client, which only needs the group system:masters.
func (s *Server) secure(ctx context.Context) (*rbac.Authorizer, error) {
	s.api.Use(apiserver.Security{Authorizer: auth.Masters{}})
	policy, err := rbac.New(ctx, s.own(), config.EnabledGates(s.cfg.APIServer.FeatureGates)...)
	if err != nil {
		return nil, err
	}
	nodes, err := node.New(ctx, s.own())
	if err != nil {
		return nil, err
	}
	tokens, err := s.serviceAccountTokens(ctx)
	if err != nil {
		return nil, err
	}
	s.tokens = tokens
	s.api.Register(tokens.Collectors()...)
	authorizer, err := s.authorizers(ctx, nodes, policy)
	if err != nil {
		return nil, err
	}
	chain, err := s.admission(ctx, authorizer, policy)
	if err != nil {
		return nil, err
	}
	issuers, anonymity, err := s.issuers(ctx, tokens.Audiences, append([]string{tokens.Issuer}, tokens.AcceptedIssuers...))
	if err != nil {
		return nil, err
	}
	s.outside = issuers
	var all auth.TokenAuthenticators
	if file := s.cfg.APIServer.TokenFile; file != "" {
		known, err := token.OpenFile(file, tokens.Audiences)
		if err != nil {
			return nil, err
		}
		all = append(all, known)
	}
	all = append(all, tokens)
	if s.cfg.APIServer.Authentication.BootstrapTokens {
		all = append(all, token.NewBootstrap(ctx, s.own(), tokens.Audiences, s.clock.Now))
	}
	all = append(all, issuers)
	if file := s.cfg.APIServer.TokenWebhook; file != "" {
		asked, err := authwebhook.NewTokens(file, s.cfg.APIServer.TokenWebhookTTL.Duration, s.egress.To(egress.ControlPlane))
		if err != nil {
			return nil, err
		}
		all = append(all, asked)
	}
	paths := s.paths()
	first := slices.Clone(s.frontProxies)
	if pages := s.openSessions(issuers, paths); pages != nil {
		first = slices.Insert(first, 0, auth.Authenticator(pages))
	}
	s.api.Use(apiserver.Security{
		Authenticator: auth.Requests{
			Authenticators: append(first,
				s.clients.certificates,
				auth.Bearer{Tokens: all, Audiences: tokens.Audiences},
			),
			Anonymous:    anonymity,
			ProxyHeaders: s.proxyHeaders,
		},
		Authorizer: authorizer, Admission: chain, TokenIssuer: tokens, Tokens: all, Audiences: tokens.Audiences, Rules: policy,
		Paths: paths,
	})
	return policy, nil
}

// admission is the admission chain including webhooks and policies.
func (s *Server) admission(ctx context.Context, authorizer auth.Authorizer, roles *rbac.Authorizer) (admission.Chain, error) {
	files, err := admission.LoadFiles(s.cfg.AdmissionConfig, func(plugin string) bool {
		return admission.Runs(plugin, s.cfg.EnableAdmission, s.cfg.DisableAdmission)
	})
	if err != nil {
		return admission.Chain{}, err
	}
	metrics := measure.New()
	s.api.Register(metrics.Collectors()...)
	policies := policy.Config{Client: s.own(), Served: s.api.Served(), Authorizer: authorizer, Metrics: metrics}
	mutating := webhook.Config{Client: s.own(), Served: s.api.Served(), Authorizer: authorizer, Resolve: client.NewRoutes(ctx, s.own()).Resolve, Egress: s.egress, Log: s.log.With("component", "admission"), Metrics: metrics}
	validating := mutating
	if mutating.Credentials, err = webhook.LoadCredentials(files.MutatingWebhooks); err != nil {
		return admission.Chain{}, err
	}
	if validating.Credentials, err = webhook.LoadCredentials(files.ValidatingWebhooks); err != nil {
		return admission.Chain{}, err
	}
	notReady, unreachable := int64(s.cfg.APIServer.NotReadyToleration), int64(s.cfg.APIServer.UnreachableToleration)
	return admission.Default(ctx, s.own(), admission.Config{
		NotReadyToleration: &notReady, UnreachableToleration: &unreachable,
		Metrics: metrics, Authorizer: authorizer, Served: s.api.Served(), Roles: roles, Files: files, Enable: s.cfg.EnableAdmission, Disable: s.cfg.DisableAdmission,
		Architecture:   s.cfg.Architecture,
		MutatingPolicy: policy.NewMutating(ctx, policies), ValidatingPolicy: policy.NewValidating(ctx, policies),
		MutatingWebhook: webhook.NewMutating(ctx, mutating), ValidatingWebhook: webhook.NewValidating(ctx, validating),
	})
}

// authorizers returns the authorizers in the configured order.
func (s *Server) authorizers(ctx context.Context, nodes, policy auth.Authorizer) (auth.Authorizer, error) {
	c := &s.cfg.APIServer
	known := authwebhook.Authorizers{
		"Node": nodes, "RBAC": policy, "AlwaysAllow": authwebhook.Always(auth.Allow), "AlwaysDeny": authwebhook.Always(auth.NoOpinion),
	}
	if c.AuthorizationPolicy != "" {
		known["ABAC"] = authwebhook.Opened(func() (auth.Authorizer, error) {
			policies, err := abac.Load(c.AuthorizationPolicy)
			if err != nil {
				return nil, fmt.Errorf("--authorization-policy-file: %w", err)
			}
			return policies, nil
		})
	}
	chain := authwebhook.NewChain(known)
	chain.Dial = s.egress.To(egress.ControlPlane)
	s.api.Register(chain.Collectors()...)
	if c.AuthorizationConfig != "" {
		return chain, s.follow(ctx, "authorization", c.AuthorizationConfig, func(_ context.Context, data []byte) error {
			if err := chain.Use(data); err != nil {
				return fmt.Errorf("authorization configuration %s: %w", c.AuthorizationConfig, err)
			}
			return nil
		})
	}
	modes := c.AuthorizationModes
	if len(modes) == 0 {
		modes = config.DefaultAuthorizationModes
	}
	return chain, chain.UseFlags(authwebhook.Flags{
		Modes: modes, WebhookConfig: c.AuthorizationWebhook, AllowedTTL: c.AuthorizationAllowedTTL.Duration, RefusedTTL: c.AuthorizationRefusedTTL.Duration,
	})
}
