// Package admissionregistration holds the kinds of admissionregistration.k8s.io: webhook
// configurations, admission policies and their bindings.
package admissionregistration

import (
	"reflect"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/resource/columns"
	"github.com/knarr-project/knarr/internal/resource/strategy"
)

func ValidatingWebhooksStrategy() *strategy.Strategy {
	s := strategy.Plain(false)
	s.Default = strategy.On(defaultValidatingWebhooks)
	s.ValidateCreate, s.ValidateUpdate = strategy.Checks(validateValidatingWebhooks), strategy.ChecksBoth(validateValidatingWebhooksUpdate)
	s.PrepareCreate = strategy.On(func(c *admissionregistrationv1.ValidatingWebhookConfiguration) { c.Generation = 1 })
	s.PrepareUpdate = strategy.OnBoth(func(c, old *admissionregistrationv1.ValidatingWebhookConfiguration) {
		// An empty list in place of none counts as a change.
		strategy.SetGeneration(c, old, !reflect.DeepEqual(c.Webhooks, old.Webhooks))
	})
	return strategy.Show(strategy.WithLooseFinalizers(s), webhooksColumns, validatingWebhooksRow)
}

func MutatingWebhooksStrategy() *strategy.Strategy {
	s := strategy.Plain(false)
	s.Default = strategy.On(defaultMutatingWebhooks)
	s.ValidateCreate, s.ValidateUpdate = strategy.Checks(validateMutatingWebhooks), strategy.ChecksBoth(validateMutatingWebhooksUpdate)
	s.PrepareCreate = strategy.On(func(c *admissionregistrationv1.MutatingWebhookConfiguration) { c.Generation = 1 })
	s.PrepareUpdate = strategy.OnBoth(func(c, old *admissionregistrationv1.MutatingWebhookConfiguration) {
		// An empty list in place of none counts as a change.
		strategy.SetGeneration(c, old, !reflect.DeepEqual(c.Webhooks, old.Webhooks))
	})
	return strategy.Show(strategy.WithLooseFinalizers(s), webhooksColumns, mutatingWebhooksRow)
}

func defaultValidatingWebhooks(c *admissionregistrationv1.ValidatingWebhookConfiguration) {
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		strategy.SetPointer(&w.FailurePolicy, admissionregistrationv1.Fail)
		strategy.SetPointer(&w.MatchPolicy, admissionregistrationv1.Equivalent)
		strategy.SetPointer(&w.NamespaceSelector, metav1.LabelSelector{})
		strategy.SetPointer(&w.ObjectSelector, metav1.LabelSelector{})
		strategy.SetPointer(&w.TimeoutSeconds, 10)
		defaultWebhookClient(&w.ClientConfig)
		defaultWebhookRules(w.Rules)
	}
}

func defaultMutatingWebhooks(c *admissionregistrationv1.MutatingWebhookConfiguration) {
	for i := range c.Webhooks {
		w := &c.Webhooks[i]
		strategy.SetPointer(&w.FailurePolicy, admissionregistrationv1.Fail)
		strategy.SetPointer(&w.MatchPolicy, admissionregistrationv1.Equivalent)
		strategy.SetPointer(&w.NamespaceSelector, metav1.LabelSelector{})
		strategy.SetPointer(&w.ObjectSelector, metav1.LabelSelector{})
		strategy.SetPointer(&w.TimeoutSeconds, 10)
		strategy.SetPointer(&w.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
		defaultWebhookClient(&w.ClientConfig)
		defaultWebhookRules(w.Rules)
	}
}

func defaultWebhookClient(c *admissionregistrationv1.WebhookClientConfig) {
	if c.Service != nil {
		strategy.SetPointer(&c.Service.Port, 443)
	}
}

func defaultWebhookRules(rules []admissionregistrationv1.RuleWithOperations) {
	for i := range rules {
		strategy.SetPointer(&rules[i].Scope, admissionregistrationv1.AllScopes)
	}
}

var webhooksColumns = columns.Define("Name", "Webhooks:integer=Webhooks indicates the number of webhooks registered in this configuration", "Age")

func validatingWebhooksRow(c *admissionregistrationv1.ValidatingWebhookConfiguration, now metav1.Time) []any {
	return []any{c.Name, int64(len(c.Webhooks)), columns.AgeOf(c, now)}
}

func mutatingWebhooksRow(c *admissionregistrationv1.MutatingWebhookConfiguration, now metav1.Time) []any {
	return []any{c.Name, int64(len(c.Webhooks)), columns.AgeOf(c, now)}
}
