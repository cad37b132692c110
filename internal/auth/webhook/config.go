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

// Authorizers that need no configuration, by the name of their type.
type Authorizers map[string]auth.Authorizer

// Always decides everything alike: AlwaysAllow and AlwaysDeny.
type Always auth.Decision

// Authorize implements auth.Authorizer.
func (a Always) Authorize(context.Context, auth.Attributes) (auth.Decision, string, error) {
	if auth.Decision(a) == auth.Allow {
		return auth.Allow, "", nil
	}
	return auth.NoOpinion, "Everything is forbidden.", nil
}

// Opened is an authorizer that is opened when the first configuration names it. One that comes later can not bring it in.
type Opened func() (auth.Authorizer, error)

// Authorize implements auth.Authorizer; what is not open has no opinion.
func (Opened) Authorize(context.Context, auth.Attributes) (auth.Decision, string, error) {
	return auth.NoOpinion, "", nil
}

// Chain are authorizers in an order that may be changed at any time.
type Chain struct {
	// Dial connects to webhooks; nil is directly. It is set before the first configuration.
	Dial egress.Dial

	known   Authorizers
	metrics *Metrics
	current atomic.Pointer[auth.Authorizers]
	// required are the types of the first configuration but for webhooks. It belongs to whoever calls Use.
	required sets.Set[string]
}

// NewChain makes a chain that has no opinion until Use or UseFlags is called. known are those that the server has by itself ("Node", "RBAC").
func NewChain(known Authorizers) *Chain {
	c := &Chain{known: known, metrics: NewMetrics()}
	c.current.Store(&auth.Authorizers{auth.Masters{}})
	return c
}

// Authorize implements auth.Authorizer.
func (c *Chain) Authorize(ctx context.Context, a auth.Attributes) (auth.Decision, string, error) {
	return c.current.Load().Authorize(ctx, a)
}

// Collectors are the chain's metrics.
func (c *Chain) Collectors() []prometheus.Collector { return c.metrics.Collectors() }

// Use takes the authorizers of a configuration (AuthorizationConfiguration), in its order. One that can not be used changes nothing.
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

// plainTypes are the authorizers that are no webhooks. Their names are not free, and those of the first configuration stay.
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

// Flags are upstream's older way to configure one webhook.
type Flags struct {
	Modes                  []string
	WebhookConfig          string
	AllowedTTL, RefusedTTL time.Duration
}

// UseFlags takes the authorizers of --authorization-mode.
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

// inOrder: the group of masters may do everything, whatever is configured.
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
