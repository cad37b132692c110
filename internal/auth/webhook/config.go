package webhook

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	apiserverconfig "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/load"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"

	"github.com/knarr-project/knarr/internal/auth"
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

// Load puts the authorizers of a configuration file in order. known are those that the server has by itself ("Node", "RBAC").
func Load(path string, known Authorizers) (auth.Authorizers, error) {
	config, err := load.LoadFromFile(path)
	if err != nil {
		return nil, fmt.Errorf("authorization configuration %s: %w", path, err)
	}
	types := sets.New(string(apiserverconfig.TypeWebhook))
	for name := range known {
		types.Insert(name)
	}
	errs := validation.ValidateAuthorizationConfiguration(authorizationcel.NewDefaultCompiler(), nil, config, types, sets.New(string(apiserverconfig.TypeWebhook)))
	if err := errs.ToAggregate(); err != nil {
		return nil, fmt.Errorf("authorization configuration %s: %w", path, err)
	}
	out, err := inOrder(config.Authorizers, known)
	if err != nil {
		return nil, fmt.Errorf("authorization configuration %s: %w", path, err)
	}
	return out, nil
}

// Flags are upstream's older way to configure one webhook.
type Flags struct {
	Modes                  []string
	WebhookConfig          string
	AllowedTTL, RefusedTTL time.Duration
}

// FromFlags puts the authorizers of --authorization-mode in order.
func FromFlags(f Flags, known Authorizers) (auth.Authorizers, error) {
	var list []apiserverconfig.AuthorizerConfiguration
	for _, mode := range f.Modes {
		c := apiserverconfig.AuthorizerConfiguration{Type: apiserverconfig.AuthorizerType(mode), Name: mode}
		if c.Type == apiserverconfig.TypeWebhook {
			if f.WebhookConfig == "" {
				return nil, fmt.Errorf("authorization-mode Webhook needs --authorization-webhook-config-file")
			}
			c.Webhook = &apiserverconfig.WebhookConfiguration{
				AuthorizedTTL: metav1.Duration{Duration: f.AllowedTTL}, CacheAuthorizedRequests: f.AllowedTTL > 0,
				UnauthorizedTTL: metav1.Duration{Duration: f.RefusedTTL}, CacheUnauthorizedRequests: f.RefusedTTL > 0,
				Timeout: metav1.Duration{Duration: 30 * time.Second}, FailurePolicy: apiserverconfig.FailurePolicyNoOpinion,
				ConnectionInfo: apiserverconfig.WebhookConnectionInfo{Type: apiserverconfig.AuthorizationWebhookConnectionInfoTypeKubeConfigFile, KubeConfigFile: &f.WebhookConfig},
			}
		}
		list = append(list, c)
	}
	return inOrder(list, known)
}

// inOrder: the group of masters may do everything, whatever is configured.
func inOrder(list []apiserverconfig.AuthorizerConfiguration, known Authorizers) (auth.Authorizers, error) {
	out := auth.Authorizers{auth.Masters{}}
	for i := range list {
		c := &list[i]
		if c.Type == apiserverconfig.TypeWebhook {
			a, err := newAuthorizer(c.Name, c.Webhook, time.Now)
			if err != nil {
				return nil, err
			}
			out = append(out, a)
			continue
		}
		a, ok := known[string(c.Type)]
		if !ok {
			return nil, fmt.Errorf("authorizer %q is not supported", c.Type)
		}
		out = append(out, a)
	}
	return out, nil
}
