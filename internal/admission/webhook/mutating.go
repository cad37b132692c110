package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/google/uuid"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/client"
)

// Mutating is the plugin MutatingAdmissionWebhook.
type Mutating struct {
	config     Config
	namespaces admission.Namespaces
	source     source[*admissionregistrationv1.MutatingWebhookConfiguration]
}

var _ admission.Mutator = (*Mutating)(nil)

// NewMutating makes the plugin; it reads configurations until ctx ends.
func NewMutating(ctx context.Context, config Config) *Mutating {
	p := &Mutating{config: config, namespaces: admission.NewNamespaces(ctx, config.Client)}
	p.source.view = client.NewLazy[*admissionregistrationv1.MutatingWebhookConfiguration](ctx, config.Client, nil)
	p.source.prepare = func(c *admissionregistrationv1.MutatingWebhookConfiguration) []*hook {
		hooks := make([]*hook, len(c.Webhooks))
		for i := range c.Webhooks {
			hooks[i] = newHook(c.Name, i, &c.Webhooks[i], &p.config)
		}
		return hooks
	}
	return p
}

// Name implements admission.Plugin.
func (p *Mutating) Name() string { return "MutatingAdmissionWebhook" }

// Handles implements admission.Plugin.
func (p *Mutating) Handles(admission.Operation) bool { return true }

// again decides which hooks see the object a second time: those of reinvocationPolicy IfNeeded that saw it before
// something else changed it.
type again struct {
	invoked map[string]bool // of reinvocationPolicy IfNeeded, since the last change
	due     map[string]bool
	// left is the object as the plugin left it in the first round.
	left runtime.Object
}

func newAgain() any { return &again{invoked: map[string]bool{}, due: map[string]bool{}} }

// changed makes all hooks due that have seen the object before this change.
func (r *again) changed() {
	for id := range r.invoked {
		r.due[id] = true
	}
	clear(r.invoked)
}

// Admit implements admission.Mutator: hooks are asked one after the other, each about what the one before left.
func (p *Mutating) Admit(ctx context.Context, a *admission.Attributes) error {
	if a.IsAdmissionConfiguration() {
		return nil
	}
	hooks, err := p.source.hooks()
	if err != nil || len(hooks) == 0 {
		return err
	}
	r := a.Rounds.State(p.Name(), newAgain).(*again)
	round := a.Rounds.Number
	if round > 0 && !equality.Semantic.DeepEqual(r.left, a.Object) {
		r.changed()
	}
	s := show(a, &p.config)
	for _, h := range hooks {
		if round > 0 && !r.due[h.id()] {
			continue
		}
		e, err := h.wants(ctx, s, p.namespaces)
		if err != nil {
			return err
		}
		if e == nil {
			continue
		}
		changed, err := p.invoke(ctx, h, s, e)
		if err != nil {
			return err
		}
		if changed {
			s.changed()
			r.changed()
			a.Rounds.Repeat()
		}
		if h.again {
			r.invoked[h.id()] = true
		}
	}
	if round == 0 && a.Object != nil && len(r.due)+len(r.invoked) > 0 {
		r.left = a.Object.DeepCopyObject()
	}
	return nil
}

// invoke asks one hook and applies its patch.
func (p *Mutating) invoke(ctx context.Context, h *hook, s *shown, e *encoded) (changed bool, err error) {
	round := s.Rounds.Number
	answer, err := h.ask(ctx, e, uuid.NewString())
	if err != nil {
		return false, h.failed(s, "mutating", round, err)
	}
	h.report(answer, s)
	if !answer.allowed {
		p.annotate(h, s, round, false, nil)
		return false, h.refusal(answer.result)
	}
	if len(answer.patch) == 0 {
		p.annotate(h, s, round, false, nil)
		return false, nil
	}
	obj, err := patched(e, answer.patch)
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	if obj == nil {
		p.annotate(h, s, round, false, nil)
		return false, nil
	}
	before := s.Object.DeepCopyObject()
	if err := s.Replace(p.config.Served, e.Form, obj); err != nil {
		return false, apierrors.NewInternalError(err)
	}
	changed = !reflect.DeepEqual(before, s.Object)
	p.annotate(h, s, round, changed, answer.patch)
	return changed, nil
}

// annotate tells the audit log who changed what (documentation: auditing mutating webhooks).
func (p *Mutating) annotate(h *hook, s *shown, round int, changed bool, patch []byte) {
	value, err := json.Marshal(struct {
		Configuration string `json:"configuration"`
		Webhook       string `json:"webhook"`
		Mutated       bool   `json:"mutated"`
	}{h.configuration, h.name, changed})
	if err == nil {
		s.Annotate(fmt.Sprintf("mutation.webhook.admission.k8s.io/round_%d_index_%d", round, h.position), string(value))
	}
	if len(patch) == 0 {
		return
	}
	value, err = json.Marshal(struct {
		Configuration string          `json:"configuration"`
		Webhook       string          `json:"webhook"`
		Patch         json.RawMessage `json:"patch"`
		PatchType     string          `json:"patchType"`
	}{h.configuration, h.name, patch, "JSONPatch"})
	if err == nil {
		s.Annotate(fmt.Sprintf("patch.webhook.admission.k8s.io/round_%d_index_%d", round, h.position), string(value))
	}
}
