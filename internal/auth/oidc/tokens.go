package oidc

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apiserverconfig "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/auth/jws"
	"github.com/knarr-project/knarr/internal/cel"
	"github.com/knarr-project/knarr/internal/egress"
)

// Options configures Tokens.
type Options struct {
	// Audiences are the API server's own. The configuration names the audiences of each issuer's
	// tokens.
	Audiences []string
	// Disallowed lists issuers that the configuration must not name: those of service account
	// tokens.
	Disallowed []string
	// Algorithms lists the allowed signing algorithms; empty means all known ones.
	Algorithms []string
	// Egress connects to issuers that name a network; nil has no networks.
	Egress *egress.Selector
	Log    *slog.Logger
	Now    func() time.Time // time.Now when nil
}

// Tokens authenticates the tokens of the configured issuers. The configuration may be replaced at
// any time.
type Tokens struct {
	Options
	ctx     context.Context
	end     context.CancelFunc
	asking  sync.WaitGroup // discovery of issuers that have not answered yet
	metrics *metrics
	list    atomic.Pointer[[]*authenticator]
}

// New returns a Tokens that authenticates no user until Use is called. It works until ctx ends or
// Close is called.
func New(ctx context.Context, options Options) (*Tokens, error) {
	t := &Tokens{Options: options, ctx: ctx, metrics: newMetrics()}
	if len(t.Algorithms) == 0 {
		t.Algorithms = allAlgorithms
	}
	for _, name := range t.Algorithms {
		if !jws.Known(name) {
			return nil, fmt.Errorf("oidc: unsupported signing alg: %q", name)
		}
	}
	t.Algorithms = slices.Sorted(slices.Values(t.Algorithms))
	if t.Now == nil {
		t.Now = time.Now
	}
	t.ctx, t.end = context.WithCancel(ctx)
	t.list.Store(&[]*authenticator{})
	return t, nil
}

// AuthenticateToken implements auth.TokenAuthenticator. Each issuer is configured once, so at most
// one authenticator checks a token.
func (t *Tokens) AuthenticateToken(ctx context.Context, token string, audiences []string) (auth.User, []string, bool, error) {
	accepted := auth.CommonAudiences(audiences, t.Audiences)
	if len(accepted) == 0 {
		return auth.User{}, nil, false, nil
	}
	list := *t.list.Load()
	if len(list) == 0 {
		return auth.User{}, nil, false, nil
	}
	parts, ok := jws.Split(token)
	if !ok {
		return auth.User{}, nil, false, nil
	}
	issuer := issuerOf(&parts)
	for _, a := range list {
		if a.config.Issuer.URL == issuer {
			user, err := a.authenticate(ctx, &parts)
			return user, accepted, err == nil, err
		}
	}
	return auth.User{}, nil, false, nil
}

// patience is how long Use waits for the issuers of a changed configuration.
const patience = 10 * time.Second

// Use replaces the configuration. Authenticators of unchanged issuers stay. With wait, the
// configuration only takes effect if all its issuers answer; otherwise discovery continues in the
// background.
func (t *Tokens) Use(ctx context.Context, config *Configuration, wait bool) error {
	before := *t.list.Load()
	var next, made []*authenticator
	for i := range config.JWT {
		c := &config.JWT[i]
		if at := slices.IndexFunc(before, func(a *authenticator) bool { return reflect.DeepEqual(a.config, *c) }); at >= 0 {
			next = append(next, before[at])
			continue
		}
		a, err := t.newAuthenticator(c)
		if err != nil {
			return err
		}
		made, next = append(made, a), append(next, a)
	}
	if wait {
		if err := discovered(ctx, made); err != nil {
			return err
		}
	}
	for _, a := range made {
		if a.provider.ready() != nil {
			life, end := context.WithCancel(t.ctx)
			a.end = end
			t.asking.Go(func() { defer end(); a.provider.run(life) })
		}
	}
	t.list.Store(&next)
	for _, a := range before {
		if a.end != nil && !slices.Contains(next, a) {
			a.end()
		}
		if issuer := a.config.Issuer.URL; !slices.ContainsFunc(next, func(b *authenticator) bool { return b.config.Issuer.URL == issuer }) {
			t.metrics.forget(issuer)
		}
	}
	return nil
}

func discovered(ctx context.Context, list []*authenticator) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, a := range list {
		if err := a.provider.discover(ctx); err != nil {
			return fmt.Errorf("issuer %q: %w", a.config.Issuer.URL, err)
		}
	}
	return nil
}

func (t *Tokens) newAuthenticator(c *apiserverconfig.JWTAuthenticator) (*authenticator, error) {
	mapper, errs := validation.CompileAndValidateJWTAuthenticator(authenticationcel.NewCompiler(cel.Environments()), *c, t.Disallowed)
	if err := errs.ToAggregate(); err != nil {
		return nil, err
	}
	dial, err := t.dialFor(c.Issuer.EgressSelectorType)
	if err != nil {
		return nil, err
	}
	client, err := newClient(c.Issuer.CertificateAuthority, dial)
	if err != nil {
		return nil, err
	}
	m := t.metrics.of(c.Issuer.URL)
	return &authenticator{
		metrics: m, config: *c.DeepCopy(), algorithms: t.Algorithms, mapper: mapper, log: t.Log, now: t.Now, sources: map[string]*provider{},
		provider: newProvider(c.Issuer.URL, c.Issuer.DiscoveryURL, client, t.Log, t.Now, m),
	}, nil
}

// dialFor returns the connection to an issuer that names a network; nil connects directly. Here an
// unconfigured network is an error, as upstream.
func (t *Tokens) dialFor(network apiserverconfig.EgressSelectorType) (egress.Dial, error) {
	if network == "" {
		return nil, nil
	}
	if t.Egress == nil {
		return nil, fmt.Errorf("oidc: egress lookup required with egress selector type %q: give --egress-selector-config-file", network)
	}
	dial := t.Egress.To(egress.Network(network))
	if dial == nil {
		return nil, fmt.Errorf("oidc: egress lookup for %q is not configured", network)
	}
	return dial, nil
}

// Close stops the requests to issuers. Do not call Use concurrently or later.
func (t *Tokens) Close() {
	t.end()
	t.asking.Wait()
}
