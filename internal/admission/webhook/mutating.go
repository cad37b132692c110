package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/google/uuid"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/admission/measure"
	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/client"
)

// Mutating is the plugin MutatingAdmissionWebhook.
type Mutating struct {
	config     Config
	namespaces admission.Namespaces
	source     source[*admissionregistrationv1.MutatingWebhookConfiguration]
}

var _ admission.Mutator = (*Mutating)(nil)

// NewMutating returns the plugin, which reads configurations until ctx ends.
func NewMutating(ctx context.Context, config Config) *Mutating {
	if config.Metrics == nil {
		config.Metrics = measure.New()
	}
	p := &Mutating{config: config, namespaces: admission.NewNamespaces(ctx, config.Client)}
	p.source.view = client.NewLazy[*admissionregistrationv1.MutatingWebhookConfiguration](ctx, config.Client, nil)
	p.source.prepare = func(c *admissionregistrationv1.MutatingWebhookConfiguration) []*hook {
		hooks := make([]*hook, len(c.Webhooks))
		for i := range c.Webhooks {
			hooks[i] = newHook(measure.Mutating, c.Name, i, &c.Webhooks[i], &p.config)
		}
		return hooks
	}
	return p
}

// Name implements admission.Plugin.
func (p *Mutating) Name() string { return "MutatingAdmissionWebhook" }

// Handles implements admission.Plugin.
func (p *Mutating) Handles(admission.Operation) bool { return true }

// Admit implements admission.Mutator. It calls hooks one after the other; each sees the changes of
// the previous ones.
func (p *Mutating) Admit(ctx context.Context, a *admission.Attributes) error {
	if a.IsAdmissionConfiguration() {
		return nil
	}
	hooks, err := p.source.hooks()
	if err != nil || len(hooks) == 0 {
		return err
	}
	again := a.Rounds.Again(p.Name())
	again.Enter(a)
	s := newHookWrite(a, &p.config)
	for _, h := range hooks {
		if again.Skips(a, h.id()) {
			continue
		}
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
		changed, err := p.invoke(ctx, h, s, e)
		if err != nil {
			return err
		}
		if changed {
			s.changed()
			again.Changed(a)
		}
		if h.reinvoke {
			again.Invoked(h.id())
		}
	}
	again.Leave(a)
	return nil
}

// invoke calls one hook and applies its patch. It writes an audit annotation for every call and
// every applied patch.
func (p *Mutating) invoke(ctx context.Context, h *hook, s *hookWrite, e *encoded) (changed bool, err error) {
	round := s.Rounds.Number
	var patch jsonpatch.Patch
	defer func() { p.annotate(h, s, round, changed, patch) }()
	since := time.Now()
	answer, err := h.ask(ctx, e, uuid.NewString())
	s.Webhooks(true, time.Since(since))
	if err == nil {
		changed, patch, err = p.applyAnswer(h, s, e, answer)
	}
	h.measure(s, outcomeOf(answer, err), time.Since(since))
	if err == nil {
		return changed, nil
	}
	if err = h.failed(s, "mutation", round, h.position, err); err == nil && ctx.Err() != nil {
		err = apierrors.NewTimeoutError("request did not complete within requested timeout", 0)
	}
	return false, err
}

// applyAnswer applies the hook's answer. An invalid answer is a callError.
func (p *Mutating) applyAnswer(h *hook, s *hookWrite, e *encoded, a *answer) (bool, jsonpatch.Patch, error) {
	h.report(a, s)
	if !a.allowed {
		return false, nil, h.refusal(a.result)
	}
	if len(a.patch) == 0 {
		return false, nil, nil
	}
	patch, err := api.DecodeJSONPatch(a.patch)
	switch {
	case err != nil:
		return false, nil, &callError{fmt.Errorf("received undecodable patch in webhook response: %w", err), http.StatusServiceUnavailable}
	case len(patch) == 0:
		return false, nil, nil
	case e.Object == nil:
		return false, nil, apierrors.NewInternalError(fmt.Errorf("admission webhook %q attempted to modify the object, which is not supported for this operation", h.name))
	case a.patchType != admissionv1.PatchTypeJSONPatch:
		return false, nil, &callError{fmt.Errorf("unsupported patch type %q", a.patchType), refusalCode(a.result)}
	}
	obj, err := patched(e, patch)
	if err != nil {
		return false, nil, apierrors.NewInternalError(err)
	}
	if obj == nil {
		return false, patch, nil
	}
	before := s.Object.DeepCopyObject()
	if err := s.Replace(p.config.Served, e.Form, obj); err != nil {
		return false, nil, apierrors.NewInternalError(err)
	}
	return !equality.Semantic.DeepEqual(before, s.Object), patch, nil
}

// annotate writes the audit annotations about a call and its patch (documentation: auditing
// mutating webhooks).
func (p *Mutating) annotate(h *hook, s *hookWrite, round int, changed bool, patch jsonpatch.Patch) {
	value, err := json.Marshal(struct {
		Configuration string `json:"configuration"`
		Webhook       string `json:"webhook"`
		Mutated       bool   `json:"mutated"`
	}{h.configuration, h.name, changed})
	if err == nil {
		s.Annotate(fmt.Sprintf("mutation.webhook.admission.k8s.io/round_%d_index_%d", round, h.position), string(value))
	}
	if len(patch) == 0 || s.AnnotateRequest == nil {
		return
	}
	value, err = json.Marshal(struct {
		Configuration string          `json:"configuration"`
		Webhook       string          `json:"webhook"`
		Patch         jsonpatch.Patch `json:"patch"`
		PatchType     string          `json:"patchType"`
	}{h.configuration, h.name, patch, "JSONPatch"})
	if err == nil {
		s.AnnotateRequest(fmt.Sprintf("patch.webhook.admission.k8s.io/round_%d_index_%d", round, h.position), string(value))
	}
}
