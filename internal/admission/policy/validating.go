package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	celtypes "github.com/google/cel-go/common/types"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/admission/measure"
	"github.com/knarr-project/knarr/internal/cel"
	"github.com/knarr-project/knarr/internal/client"
)

// Validating is the plugin ValidatingAdmissionPolicy.
type Validating struct {
	config     Config
	namespaces admission.Namespaces
	params     *params
	source     source[*admissionregistrationv1.ValidatingAdmissionPolicy, *admissionregistrationv1.ValidatingAdmissionPolicyBinding, *validatingRule]
}

var _ admission.Validator = (*Validating)(nil)

type validatingRule struct {
	rule
	compiled func() (*validations, error)
}

// NewValidating returns the plugin, which reads policies until ctx ends.
func NewValidating(ctx context.Context, config Config) *Validating {
	if config.Metrics == nil {
		config.Metrics = measure.New()
	}
	p := &Validating{config: config, namespaces: admission.NewNamespaces(ctx, config.Client)}
	p.params = newParams(ctx, &p.config)
	s := &p.source
	s.params = p.params
	s.policies = client.NewLazy[*admissionregistrationv1.ValidatingAdmissionPolicy](ctx, config.Client, nil)
	s.bindings = client.NewLazy[*admissionregistrationv1.ValidatingAdmissionPolicyBinding](ctx, config.Client, nil)
	s.prepare = func(v *admissionregistrationv1.ValidatingAdmissionPolicy) *validatingRule {
		return &validatingRule{
			rule:     newRule(config.Metrics, v.Name, v.Spec.ParamKind, v.Spec.MatchConstraints, v.Spec.MatchConditions, v.Spec.FailurePolicy),
			compiled: sync.OnceValues(func() (*validations, error) { return compileValidations(config.Metrics, &v.Spec) }),
		}
	}
	s.kinds = func(r *validatingRule) *admissionregistrationv1.ParamKind { return r.paramKind }
	s.bind = func(r *validatingRule, of []*binding) *validatingRule {
		bound := *r
		bound.bindings = of
		return &bound
	}
	s.bound = func(b *admissionregistrationv1.ValidatingAdmissionPolicyBinding) (string, *binding) {
		return b.Spec.PolicyName, &binding{name: b.Name, params: b.Spec.ParamRef, matcher: bindingMatcher(b.Spec.MatchResources), actions: b.Spec.ValidationActions}
	}
	return p
}

// Name implements admission.Plugin.
func (p *Validating) Name() string { return "ValidatingAdmissionPolicy" }

// Handles implements admission.Plugin.
func (p *Validating) Handles(admission.Operation) bool { return true }

// decision is one reason to refuse the write.
type decision struct {
	policy, binding string
	index           int // of the validation
	message         string
	reason          metav1.StatusReason
	configuration   bool // the policy or binding itself cannot be evaluated
	failsOpen       bool // an error of a policy that fails open, which is only counted
	actions         []admissionregistrationv1.ValidationAction
}

// Validate implements admission.Validator.
func (p *Validating) Validate(ctx context.Context, a *admission.Attributes) error {
	if excluded(a) {
		return nil
	}
	rules, err := p.source.current()
	if err != nil || len(rules) == 0 {
		return err
	}
	w := newWrite(ctx, a, &p.config, p.namespaces)
	out := &outcome{annotations: map[string][]string{}}
	for _, r := range rules {
		if err := p.apply(ctx, r, w, out); err != nil {
			return err
		}
	}
	out.annotate(a)
	return out.deny(a)
}

// measureCheck counts what a binding did with a write: which of its actions, or that it ignored an
// error. As upstream, a write without decisions is not counted, and every decision counts as an
// error.
func measureCheck(m *measure.Metrics, policy string, b *binding, decisions []decision, took time.Duration) {
	for _, d := range decisions {
		if d.failsOpen {
			m.Policy(policy, b.name, measure.InvalidType, measure.Allowed, took)
			continue
		}
		for _, action := range b.actions {
			m.Policy(policy, b.name, measure.InvalidType, strings.ToLower(string(action)), took)
		}
	}
}

// outcome collects the results of all policies.
type outcome struct {
	denied      []decision
	audited     []decision
	annotations map[string][]string
}

// apply evaluates one policy for the write.
func (p *Validating) apply(ctx context.Context, r *validatingRule, w *write, out *outcome) error {
	v, err := r.match(ctx, w)
	if err == nil && v != nil {
		err = p.params.configured(&r.rule) // regardless of its bindings
	}
	if err != nil {
		if !r.failOpen {
			out.denied = append(out.denied, decision{policy: r.name, message: err.Error(), configuration: true})
		}
		return nil
	}
	if v == nil {
		return nil
	}
	for _, b := range r.bindings {
		failed := func(err error) {
			if !r.failOpen {
				out.denied = append(out.denied, decision{policy: r.name, binding: b.name, message: "failed to configure binding: " + err.Error(), configuration: true})
			}
		}
		ok, err := b.matches(ctx, w)
		if err != nil {
			failed(err)
			continue
		}
		if !ok {
			continue
		}
		params, err := p.params.of(ctx, &r.rule, b, w.Namespace)
		if err != nil {
			failed(err)
			continue
		}
		for _, param := range params {
			since := time.Now()
			decisions, err := r.check(ctx, v, param, out)
			if err != nil {
				return apierrors.NewInternalError(err)
			}
			out.take(w.Attributes, r.name, b, decisions)
			measureCheck(p.config.Metrics, r.name, b, decisions, time.Since(since))
		}
	}
	return nil
}

// maxAnnotation is the size in bytes to which an audit annotation's value is truncated (10kb in the
// API reference).
const maxAnnotation = 10 << 10

// check evaluates the policy with one parameter.
func (r *validatingRule) check(ctx context.Context, v *view, param runtime.Object, out *outcome) ([]decision, error) {
	in := v.input
	if r.paramKind != nil {
		in.Params = cel.OfObject(param)
	}
	failure := func(err error) decision {
		return decision{message: err.Error(), reason: metav1.StatusReasonInvalid, failsOpen: r.failOpen}
	}
	switch ok, err := r.conditions.Match(ctx, v.Attributes, in); {
	case err != nil && !r.failOpen:
		return []decision{failure(err)}, nil
	case err != nil || !ok:
		return nil, nil
	}
	compiled, err := r.compiled()
	if err != nil {
		return nil, err
	}
	e := compiled.compiler.Evaluate(ctx, in, cel.Budget)
	decisions := compiled.validate(e, failure)
	for _, annotation := range compiled.annotations {
		value, err := e.Eval(annotation.Program)
		if err != nil {
			if !r.failOpen {
				decisions = append(decisions, failure(err))
			}
			continue
		}
		if text, ok := value.(celtypes.String); ok {
			key := r.name + "/" + annotation.key
			s := strings.TrimSpace(string(text))
			s = s[:min(len(s), maxAnnotation)]
			if s != "" && !slices.Contains(out.annotations[key], s) {
				out.annotations[key] = append(out.annotations[key], s)
			}
		}
	}
	return decisions, nil
}

// validations are a policy's compiled expressions.
type validations struct {
	compiler    *cel.Compiler
	checks      []check
	annotations []auditAnnotation
}

type check struct {
	cel.Program
	message    string
	expression *cel.Program // of the message
	reason     metav1.StatusReason
}

type auditAnnotation struct {
	key string
	cel.Program
}

func compileValidations(m *measure.Metrics, spec *admissionregistrationv1.ValidatingAdmissionPolicySpec) (*validations, error) {
	compiler, err := newCompiler(m, cel.Scope{Params: spec.ParamKind != nil, Authorizer: true, Stored: true}, spec.Variables)
	if err != nil {
		return nil, err
	}
	v := &validations{compiler: compiler}
	for i := range spec.Validations {
		s := &spec.Validations[i]
		c := check{Program: compiler.Compile(s.Expression, cel.Bool), message: strings.TrimSpace(s.Message), reason: metav1.StatusReasonInvalid}
		if s.Reason != nil {
			c.reason = *s.Reason
		}
		if c.message == "" {
			c.message = "failed expression: " + strings.TrimSpace(s.Expression)
		}
		if s.MessageExpression != "" {
			m := compiler.Compile(s.MessageExpression, cel.String)
			c.expression = &m
		}
		v.checks = append(v.checks, c)
	}
	for _, a := range spec.AuditAnnotations {
		v.annotations = append(v.annotations, auditAnnotation{a.Key, compiler.Compile(a.ValueExpression, cel.StringOrNot)})
	}
	return v, nil
}

func newCompiler(m *measure.Metrics, scope cel.Scope, variables []admissionregistrationv1.Variable) (*cel.Compiler, error) {
	compiler, err := cel.New(scope)
	if err != nil {
		return nil, err
	}
	compiler.Metrics = m.Expressions
	for _, v := range variables {
		if _, err := compiler.Declare(v.Name, v.Expression); err != nil {
			return nil, err
		}
	}
	return compiler, nil
}

func (v *validations) validate(e *cel.Evaluation, failure func(error) decision) (out []decision) {
	for i, c := range v.checks {
		value, err := e.Eval(c.Program)
		if err != nil {
			d := failure(err)
			d.index = i
			out = append(out, d)
			if errors.Is(err, cel.ErrBudget) {
				return out
			}
			continue
		}
		if value.Value() != true {
			out = append(out, decision{index: i, message: c.text(e), reason: c.reason})
		}
	}
	return out
}

// text returns the message for the client. A message expression without a readable result counts as
// missing.
func (c *check) text(e *cel.Evaluation) string {
	if c.expression == nil {
		return c.message
	}
	value, err := e.Eval(*c.expression)
	if err != nil {
		return c.message
	}
	text, ok := value.Value().(string)
	if text = strings.TrimSpace(text); !ok || text == "" || strings.ContainsAny(text, "\n") || len(text) > celconfig.MaxEvaluatedMessageExpressionSizeBytes {
		return c.message
	}
	return text
}

// take applies the binding's actions to the decisions.
func (o *outcome) take(a *admission.Attributes, policy string, b *binding, decisions []decision) {
	for _, d := range decisions {
		if d.failsOpen {
			continue
		}
		d.policy, d.binding, d.actions = policy, b.name, b.actions
		for _, action := range b.actions {
			switch action {
			case admissionregistrationv1.Deny:
				o.denied = append(o.denied, d)
			case admissionregistrationv1.Warn:
				a.Warn(fmt.Sprintf("Validation failed for ValidatingAdmissionPolicy '%s' with binding '%s': %s", d.policy, d.binding, d.message))
			case admissionregistrationv1.Audit:
				o.audited = append(o.audited, d)
			}
		}
	}
}

// annotate writes the audit annotations.
func (o *outcome) annotate(a *admission.Attributes) {
	for _, key := range slices.Sorted(maps.Keys(o.annotations)) {
		a.Annotate(key, strings.Join(o.annotations[key], ", "))
	}
	if len(o.audited) == 0 {
		return
	}
	type failure struct {
		Message string                                     `json:"message"`
		Policy  string                                     `json:"policy"`
		Binding string                                     `json:"binding"`
		Index   int                                        `json:"expressionIndex"`
		Actions []admissionregistrationv1.ValidationAction `json:"validationActions"`
	}
	failures := make([]failure, len(o.audited))
	for i, d := range o.audited {
		failures[i] = failure{d.message, d.policy, d.binding, d.index, d.actions}
	}
	if text, err := json.Marshal(failures); err == nil {
		a.Annotate("validation.policy.admission.k8s.io/validation_failure", string(text))
	}
}

// codes maps the reasons that a policy may give to HTTP codes.
var codes = map[metav1.StatusReason]int32{
	metav1.StatusReasonForbidden: http.StatusForbidden, metav1.StatusReasonUnauthorized: http.StatusUnauthorized,
	metav1.StatusReasonRequestEntityTooLarge: http.StatusRequestEntityTooLarge, metav1.StatusReasonInvalid: http.StatusUnprocessableEntity,
}

// deny returns the error for the first denied decision; nil if there is none.
func (o *outcome) deny(a *admission.Attributes) error {
	if len(o.denied) == 0 {
		return nil
	}
	d := o.denied[0]
	text := fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s", d.policy, d.binding, d.message)
	if d.binding == "" {
		text = fmt.Sprintf("ValidatingAdmissionPolicy '%s' denied request: %s", d.policy, d.message)
	}
	refused := a.Forbidden(errors.New(text))
	reason := d.reason
	if reason == "" {
		reason = metav1.StatusReasonInvalid
	}
	refused.ErrStatus.Reason = reason
	if code, ok := codes[reason]; ok {
		refused.ErrStatus.Code = code
	}
	refused.ErrStatus.Details.Causes = append(refused.ErrStatus.Details.Causes, metav1.StatusCause{Message: text})
	return refused
}
