package webhook

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/admission/measure"
	"github.com/knarr-project/knarr/internal/client"
)

// Validating is the plugin ValidatingAdmissionWebhook.
type Validating struct {
	config     Config
	namespaces admission.Namespaces
	source     source[*admissionregistrationv1.ValidatingWebhookConfiguration]
}

var _ admission.Validator = (*Validating)(nil)

// NewValidating returns the plugin, which reads configurations until ctx ends.
func NewValidating(ctx context.Context, config Config) *Validating {
	if config.Metrics == nil {
		config.Metrics = measure.New()
	}
	p := &Validating{config: config, namespaces: admission.NewNamespaces(ctx, config.Client)}
	p.source.view = client.NewLazy[*admissionregistrationv1.ValidatingWebhookConfiguration](ctx, config.Client, nil)
	p.source.prepare = func(c *admissionregistrationv1.ValidatingWebhookConfiguration) []*hook {
		hooks := make([]*hook, len(c.Webhooks))
		for i, w := range c.Webhooks {
			hooks[i] = newHook(measure.Validating, c.Name, i, &admissionregistrationv1.MutatingWebhook{
				Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy, MatchPolicy: w.MatchPolicy,
				NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector, SideEffects: w.SideEffects, TimeoutSeconds: w.TimeoutSeconds,
				AdmissionReviewVersions: w.AdmissionReviewVersions, MatchConditions: w.MatchConditions,
			}, &p.config)
		}
		return hooks
	}
	return p
}

// Name implements admission.Plugin.
func (p *Validating) Name() string { return "ValidatingAdmissionWebhook" }

// Handles implements admission.Plugin.
func (p *Validating) Handles(admission.Operation) bool { return true }

// Validate implements admission.Validator. It calls all matching hooks at once.
func (p *Validating) Validate(ctx context.Context, a *admission.Attributes) error {
	if a.IsAdmissionConfiguration() {
		return nil
	}
	hooks, err := p.source.hooks()
	if err != nil || len(hooks) == 0 {
		return err
	}
	s := newHookWrite(a, &p.config)
	var wanted []*hook
	var reviews []*encoded
	for _, h := range hooks {
		e, err := h.match(ctx, s, p.namespaces)
		if err != nil {
			return err
		}
		if e == nil {
			continue
		}
		if a.Instant {
			return admission.ErrNotInstant
		}
		if err := e.encode(); err != nil { // before several goroutines read it
			return err
		}
		wanted, reviews = append(wanted, h), append(reviews, e)
	}
	answers, errs := make([]*answer, len(wanted)), make([]error, len(wanted))
	if len(wanted) == 0 {
		return nil
	}
	if ctx.Err() != nil { // hooks with failurePolicy Ignore would admit the write
		return apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
	}
	var all sync.WaitGroup
	began := time.Now()
	for i, h := range wanted {
		all.Go(func() {
			since := time.Now()
			answers[i], errs[i] = h.ask(ctx, reviews[i], uuid.NewString())
			h.measure(s, outcomeOf(answers[i], errs[i]), time.Since(since))
		})
	}
	all.Wait()
	s.Webhooks(false, time.Since(began))
	var first error
	for i, h := range wanted {
		if err := h.judge(s, i, answers[i], errs[i]); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// judge returns the effect of one hook's answer on the write.
func (h *hook) judge(s *hookWrite, index int, a *answer, err error) error {
	if err != nil {
		return h.failed(s, "validating", 0, index, err)
	}
	h.report(a, s)
	if !a.allowed {
		return h.refusal(a.result)
	}
	return nil
}
