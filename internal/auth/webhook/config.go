package webhook

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	apiserverconfig "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/load"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/cel"
	"github.com/knarr-project/knarr/internal/egress"
)

// Authorizers maps types of authorizers that need no configuration to the authorizers.
type Authorizers map[string]auth.Authorizer

// Always makes the same decision for every request: AlwaysAllow and AlwaysDeny.
type Always auth.Decision

// Authorize implements auth.Authorizer.
func (a Always) Authorize(context.Context, auth.Attributes) (auth.Decision, string, error) {
	if auth.Decision(a) == auth.Allow {
		return auth.Allow, "", nil
	}
	return auth.NoOpinion, "Everything is forbidden.", nil
}

// Opened is an authorizer that is opened when the first configuration names it. A later
// configuration cannot add it.
type Opened func() (auth.Authorizer, error)

// Authorize implements auth.Authorizer. An unopened authorizer has no opinion.
func (Opened) Authorize(context.Context, auth.Attributes) (auth.Decision, string, error) {
	return auth.NoOpinion, "", nil
}

// Chain is an ordered list of authorizers that can be replaced at any time.
type Chain struct {
	// Dial connects to webhooks; nil connects directly. Set it before the first configuration.
	Dial egress.Dial

	known   Authorizers
	metrics *Metrics
	current atomic.Pointer[auth.Authorizers]
	// required holds the types of the first configuration except webhooks. The caller of Use owns
	// it.
	required sets.Set[string]
}

// NewChain returns a chain that has no opinion until Use or UseFlags is called. known holds the
// server's own authorizers ("Node", "RBAC").
func NewChain(known Authorizers) *Chain {
	c := &Chain{known: known, metrics: NewMetrics()}
	c.current.Store(&auth.Authorizers{auth.Masters{}})
	return c
}

// Authorize implements auth.Authorizer.
func (c *Chain) Authorize(ctx context.Context, a auth.Attributes) (auth.Decision, string, error) {
	return c.current.Load().Authorize(ctx, a)
}

// Collectors returns the chain's metrics.
func (c *Chain) Collectors() []prometheus.Collector { return c.metrics.Collectors() }

// Use replaces the authorizers by those of an AuthorizationConfiguration, in its order. An invalid
// configuration changes nothing.
func (c *Chain) Use(data []byte) error {
	config, err := load.LoadFromData(data)
	if err != nil {
		return err
	}
	known := sets.New(string(apiserverconfig.TypeWebhook))
	for name := range c.known {
		known.Insert(name)
	}
	errs := validation.ValidateAuthorizationConfiguration(authorizationcel.NewCompiler(cel.Environments()), nil, config, known, sets.New(string(apiserverconfig.TypeWebhook)))
	if err := errs.ToAggregate(); err != nil {
		return err
	}
	types, err := c.plainTypes(config.Authorizers)
	if err != nil {
		return err
	}
	if err := c.inOrder(config.Authorizers); err != nil {
		return err
	}
	if c.required == nil {
		c.required = types
	}
	return nil
}

// plainTypes returns the types of the authorizers that are not webhooks. Their names are fixed, and
// the types of the first configuration must stay.
func (c *Chain) plainTypes(list []apiserverconfig.AuthorizerConfiguration) (sets.Set[string], error) {
	types, errs := sets.New[string](), []error(nil)
	for _, one := range list {
		if one.Type == apiserverconfig.TypeWebhook {
			continue
		}
		types.Insert(string(one.Type))
		if name := strings.ToLower(string(one.Type)); one.Name != name {
			errs = append(errs, fmt.Errorf("expected name %s for authorizer %s instead of %s", name, one.Type, one.Name))
		}
	}
	if missing := c.required.Difference(types); len(missing) > 0 {
		errs = append(errs, fmt.Errorf("missing required types: %v", sets.List(missing)))
	}
	return types, utilerrors.NewAggregate(errs)
}

// Flags holds upstream's older flags for one webhook.
type Flags struct {
	Modes                  []string
	WebhookConfig          string
	AllowedTTL, RefusedTTL time.Duration
}

// UseFlags sets the authorizers of --authorization-mode.
func (c *Chain) UseFlags(f Flags) error {
	if f.WebhookConfig != "" && !slices.Contains(f.Modes, string(apiserverconfig.TypeWebhook)) {
		return errors.New("cannot specify --authorization-webhook-config-file without mode Webhook")
	}
	var list []apiserverconfig.AuthorizerConfiguration
	for i, mode := range f.Modes {
		if slices.Contains(f.Modes[:i], mode) {
			return fmt.Errorf("authorization-mode %q has mode specified more than once", f.Modes)
		}
		one := apiserverconfig.AuthorizerConfiguration{Type: apiserverconfig.AuthorizerType(mode), Name: mode}
		if one.Type == apiserverconfig.TypeWebhook {
			if f.WebhookConfig == "" {
				return errors.New("authorization-mode Webhook's authorization config file not passed")
			}
			one.Webhook = &apiserverconfig.WebhookConfiguration{
				AuthorizedTTL: metav1.Duration{Duration: f.AllowedTTL}, CacheAuthorizedRequests: f.AllowedTTL > 0,
				UnauthorizedTTL: metav1.Duration{Duration: f.RefusedTTL}, CacheUnauthorizedRequests: f.RefusedTTL > 0,
				Timeout: metav1.Duration{Duration: 30 * time.Second}, FailurePolicy: apiserverconfig.FailurePolicyNoOpinion,
				ConnectionInfo: apiserverconfig.WebhookConnectionInfo{Type: apiserverconfig.AuthorizationWebhookConnectionInfoTypeKubeConfigFile, KubeConfigFile: &f.WebhookConfig},
			}
		}
		list = append(list, one)
	}
	return c.inOrder(list)
}

// inOrder replaces the list of authorizers. The group system:masters is allowed everything in any
// configuration.
func (c *Chain) inOrder(list []apiserverconfig.AuthorizerConfiguration) error {
	out := auth.Authorizers{auth.Masters{}}
	for i := range list {
		one := &list[i]
		if one.Type == apiserverconfig.TypeWebhook {
			a, err := newAuthorizer(one.Name, one.Webhook, time.Now, c.metrics, c.Dial)
			if err != nil {
				return err
			}
			out = append(out, c.metrics.count(string(one.Type), one.Name, a))
			continue
		}
		a, ok := c.known[string(one.Type)]
		if !ok {
			return fmt.Errorf("authorization-mode %q is not a valid mode", one.Type)
		}
		if open, ok := a.(Opened); ok {
			if c.required != nil {
				return fmt.Errorf("authorizer type %s is not allowed if it was not enabled at initial server startup", one.Type)
			}
			var err error
			if a, err = open(); err != nil {
				return err
			}
			c.known[string(one.Type)] = a
		}
		out = append(out, c.metrics.count(string(one.Type), one.Name, a))
	}
	c.current.Store(&out)
	return nil
}
