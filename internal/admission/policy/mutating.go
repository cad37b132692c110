package policy

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/admission/measure"
	"github.com/knarr-project/knarr/internal/cel"
	"github.com/knarr-project/knarr/internal/client"
)

// Mutating is the plugin MutatingAdmissionPolicy.
type Mutating struct {
	config     Config
	namespaces admission.Namespaces
	params     *params
	source     source[*admissionregistrationv1.MutatingAdmissionPolicy, *admissionregistrationv1.MutatingAdmissionPolicyBinding, *mutatingRule]
}

var _ admission.Mutator = (*Mutating)(nil)

type mutatingRule struct {
	rule
	reinvoke bool // reinvocationPolicy IfNeeded
	compiled func() (*mutations, error)
}

type mutations struct {
	compiler *cel.Compiler
	steps    []step
}

type step struct {
	cel.Program
	apply bool // an apply configuration; otherwise a JSON patch
}

// NewMutating returns the plugin, which reads policies until ctx ends.
func NewMutating(ctx context.Context, config Config) *Mutating {
	if config.Metrics == nil {
		config.Metrics = measure.New()
	}
	p := &Mutating{config: config, namespaces: admission.NewNamespaces(ctx, config.Client)}
	p.params = newParams(ctx, &p.config)
	s := &p.source
	s.params = p.params
	s.policies = client.NewLazy[*admissionregistrationv1.MutatingAdmissionPolicy](ctx, config.Client, nil)
	s.bindings = client.NewLazy[*admissionregistrationv1.MutatingAdmissionPolicyBinding](ctx, config.Client, nil)
	s.prepare = func(m *admissionregistrationv1.MutatingAdmissionPolicy) *mutatingRule {
		return &mutatingRule{
			rule:     newRule(config.Metrics, m.Name, m.Spec.ParamKind, m.Spec.MatchConstraints, m.Spec.MatchConditions, m.Spec.FailurePolicy),
			reinvoke: m.Spec.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy,
			compiled: sync.OnceValues(func() (*mutations, error) { return compileMutations(config.Metrics, &m.Spec) }),
		}
	}
	s.kinds = func(r *mutatingRule) *admissionregistrationv1.ParamKind { return r.paramKind }
	s.bind = func(r *mutatingRule, of []*binding) *mutatingRule {
		bound := *r
		bound.bindings = of
		return &bound
	}
	s.bound = func(b *admissionregistrationv1.MutatingAdmissionPolicyBinding) (string, *binding) {
		return b.Spec.PolicyName, &binding{name: b.Name, params: b.Spec.ParamRef, matcher: bindingMatcher(b.Spec.MatchResources)}
	}
	return p
}

func compileMutations(metrics *measure.Metrics, spec *admissionregistrationv1.MutatingAdmissionPolicySpec) (*mutations, error) {
	compiler, err := newCompiler(metrics, cel.Scope{Params: spec.ParamKind != nil, Authorizer: true, Patches: true, Stored: true}, spec.Variables)
	if err != nil {
		return nil, err
	}
	m := &mutations{compiler: compiler}
	for _, s := range spec.Mutations {
		switch {
		case s.PatchType == admissionregistrationv1.PatchTypeApplyConfiguration && s.ApplyConfiguration != nil:
			m.steps = append(m.steps, step{compiler.Compile(s.ApplyConfiguration.Expression, cel.Object), true})
		case s.PatchType == admissionregistrationv1.PatchTypeJSONPatch && s.JSONPatch != nil:
			m.steps = append(m.steps, step{compiler.Compile(s.JSONPatch.Expression, cel.JSONPatch), false})
		}
	}
	return m, nil
}

// Name implements admission.Plugin.
func (p *Mutating) Name() string { return "MutatingAdmissionPolicy" }

// Handles implements admission.Plugin. A delete has no object to mutate.
func (p *Mutating) Handles(o admission.Operation) bool { return o != admission.Delete }

// Admit implements admission.Mutator. Policies change the object one after the other, in the order
// of their names.
func (p *Mutating) Admit(ctx context.Context, a *admission.Attributes) error {
	if excluded(a) || a.Object == nil {
		return nil
	}
	rules, err := p.source.current()
	if err != nil || len(rules) == 0 {
		return err
	}
	again := a.Rounds.Again(p.Name())
	again.Enter(a)
	w := newWrite(ctx, a, &p.config, p.namespaces)
	for _, r := range rules {
		if err := p.apply(ctx, r, w, again); err != nil {
			return err
		}
	}
	again.Leave(a)
	return nil
}

func (p *Mutating) apply(ctx context.Context, r *mutatingRule, w *write, again *admission.Again) error {
	a := w.Attributes
	if err := p.params.configured(&r.rule); err != nil {
		v, matchErr := r.match(ctx, w)
		if r.failOpen || v == nil && matchErr == nil {
			return nil
		}
		if matchErr != nil {
			err = matchErr
		}
		return refuse(a, metav1.StatusReasonForbidden, fmt.Sprintf("policy %q denied request: %s", r.name, err))
	}
	for _, b := range r.bindings {
		key := r.name + "/" + b.name
		if again.Skips(a, key) {
			continue
		}
		v, params, err := p.paramsFor(ctx, r, b, w)
		if err != nil {
			if r.failOpen {
				continue
			}
			return refuse(a, metav1.StatusReasonForbidden, refusal(r, b, fmt.Errorf("failed to configure binding: %w", err)))
		}
		for _, param := range params {
			before := a.Object.DeepCopyObject()
			invoked, err := p.mutate(ctx, r, b, w, v.Form, param)
			if !reflect.DeepEqual(before, a.Object) {
				again.Changed(a) // even if a later mutation failed: earlier changes stay
			}
			if err != nil {
				var internal *apierrors.StatusError
				if errors.As(err, &internal) {
					return err
				}
				if r.failOpen {
					continue
				}
				return refuse(a, metav1.StatusReasonInvalid, refusal(r, b, err))
			}
			if invoked && r.reinvoke {
				again.Invoked(key)
			}
		}
	}
	return nil
}

// paramsFor returns the parameters of a matching binding and the write in the policy's form; nil if
// the binding does not match.
func (p *Mutating) paramsFor(ctx context.Context, r *mutatingRule, b *binding, w *write) (*view, []runtime.Object, error) {
	v, err := r.match(ctx, w)
	if err != nil || v == nil {
		return nil, nil, err
	}
	if ok, err := b.matches(ctx, w); err != nil || !ok {
		return nil, nil, err
	}
	params, err := p.params.of(ctx, &r.rule, b, w.Namespace)
	return v, params, err
}

// mutate runs the policy's mutations with one parameter. Each mutation may replace the object, so
// the next one gets a new evaluation. The match was decided before the first mutation.
func (p *Mutating) mutate(ctx context.Context, r *mutatingRule, b *binding, w *write, form admission.Form, param runtime.Object) (invoked bool, err error) {
	compiled, err := r.compiled()
	if err != nil {
		return false, apierrors.NewInternalError(err)
	}
	budget := cel.Budget
	for i, s := range compiled.steps {
		v, err := w.in(form)
		if err != nil {
			return invoked, err
		}
		in := v.input
		if r.paramKind != nil {
			in.Params = cel.OfObject(param)
		}
		if i == 0 {
			if ok, err := r.conditions.Match(ctx, w.Attributes, in); err != nil || !ok {
				return false, err
			}
			invoked = true
		}
		since := time.Now()
		e := compiled.compiler.Evaluate(ctx, in, budget)
		err = p.take(s, e, w, v, form)
		budget = e.Left()
		outcome := measure.NoError
		if err != nil {
			outcome = measure.InvalidType
		}
		p.config.Metrics.Mutation(r.name, b.name, outcome, time.Since(since))
		if err != nil {
			return true, err
		}
	}
	return invoked, nil
}

// take applies the result of one mutation to the object.
func (p *Mutating) take(s step, e *cel.Evaluation, w *write, v *view, form admission.Form) error {
	value, err := e.Eval(s.Program)
	if err != nil {
		return err
	}
	changed, err := s.change(value, v.Versioned, p.config.Served)
	if err != nil || changed == nil {
		return err
	}
	if err := w.Replace(p.config.Served, form, changed); err != nil {
		return apierrors.NewInternalError(err)
	}
	w.changed()
	return nil
}

func refusal(r *mutatingRule, b *binding, err error) string {
	return fmt.Sprintf("policy '%s' with binding '%s' denied request: %s", r.name, b.name, err)
}

// refuse returns the error for a policy that cannot be evaluated.
func refuse(a *admission.Attributes, reason metav1.StatusReason, text string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: reason, Message: text,
		Details: &metav1.StatusDetails{Group: a.Resource.Group, Kind: a.Resource.Resource, Name: a.Name, Causes: []metav1.StatusCause{{Message: text}}},
	}}
}
