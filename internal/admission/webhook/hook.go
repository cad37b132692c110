package webhook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/admission/measure"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/cel"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/egress"
)

// Config configures both plugins.
type Config struct {
	// Client reads configurations, namespaces and Services.
	Client client.Interface
	Served admission.Served
	// Authorizer answers the authorization checks of match conditions.
	Authorizer auth.Authorizer
	// Credentials are sent to webhooks.
	Credentials Credentials
	// Resolve returns the HOST:PORT behind a Service.
	Resolve func(ctx context.Context, namespace, name string, port int32) (string, error)
	// Egress opens the connections to webhooks; nil means direct ones.
	Egress *egress.Selector
	// Log records failed calls; nil is slog.Default().
	Log *slog.Logger
	// Metrics count the calls; nil: nothing shows them.
	Metrics *measure.Metrics
}

// hook is one webhook. It does not change, except for its client.
type hook struct {
	kind          string // measure.Mutating or Validating
	configuration string
	index         int // in its configuration
	position      int // among all hooks of the plugin
	name          string
	endpoint      admissionregistrationv1.WebhookClientConfig
	matcher       *admission.Matcher
	conditions    *admission.Conditions
	versions      []string
	timeout       time.Duration
	ignoreFailure bool
	dryRunSafe    bool // no side effects in a dry run
	reinvoke      bool // reinvocationPolicy IfNeeded
	client        func() (*caller, error)
	logger        *slog.Logger // nil: slog.Default()
	metrics       *measure.Metrics
}

func (h *hook) log() *slog.Logger {
	if h.logger == nil {
		return slog.Default()
	}
	return h.logger
}

// id identifies the hook among all hooks of the plugin.
func (h *hook) id() string { return fmt.Sprintf("%s/%d/%s", h.configuration, h.index, h.name) }

const defaultTimeout = 10 * time.Second

// newHook prepares a webhook. The two kinds differ in one field only.
func newHook(kind, configuration string, index int, w *admissionregistrationv1.MutatingWebhook, config *Config) *hook {
	rules := make([]admissionregistrationv1.NamedRuleWithOperations, len(w.Rules))
	for i := range w.Rules {
		rules[i].RuleWithOperations = w.Rules[i]
	}
	h := &hook{
		metrics: config.Metrics, kind: kind, configuration: configuration, index: index, name: w.Name, endpoint: w.ClientConfig, versions: w.AdmissionReviewVersions, timeout: defaultTimeout,
		matcher: admission.NewMatcher(admission.Criteria{Rules: rules, MatchPolicy: w.MatchPolicy,
			NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector}),
		conditions: admission.NewConditions(config.Metrics, measure.Condition{Name: w.Name, Kind: measure.KindWebhook, Type: kind}, w.MatchConditions, cel.Scope{Authorizer: true, Stored: true}),
	}
	if w.TimeoutSeconds != nil {
		h.timeout = time.Duration(*w.TimeoutSeconds) * time.Second
	}
	h.ignoreFailure = w.FailurePolicy != nil && *w.FailurePolicy == admissionregistrationv1.Ignore
	h.dryRunSafe = w.SideEffects != nil && (*w.SideEffects == admissionregistrationv1.SideEffectClassNone || *w.SideEffects == admissionregistrationv1.SideEffectClassNoneOnDryRun)
	h.reinvoke = w.ReinvocationPolicy != nil && *w.ReinvocationPolicy == admissionregistrationv1.IfNeededReinvocationPolicy
	h.client = sync.OnceValues(func() (*caller, error) { return newCaller(h.endpoint, config) })
	h.logger = config.Log
	return h
}

// source keeps hooks prepared while their configurations stay unchanged.
type source[T client.Object] struct {
	view    *client.Lazy[T]
	prepare func(T) []*hook

	mu       sync.Mutex
	seen     []client.Identity
	prepared []*hook
}

// hooks returns the hooks of all configurations, sorted by the configurations' names.
func (s *source[T]) hooks() ([]*hook, error) {
	view, err := s.view.View()
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("read webhook configurations: %w", err))
	}
	now := view.List("", nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	if client.Same(s.seen, now) {
		return s.prepared, nil
	}
	kept := map[string]*hook{}
	for _, h := range s.prepared {
		kept[h.id()] = h
	}
	var prepared []*hook
	for _, configuration := range now {
		for _, h := range s.prepare(configuration) {
			if old := kept[h.id()]; old != nil && sameEndpoint(old.endpoint, h.endpoint) {
				h.client = old.client
				delete(kept, h.id())
			}
			h.position = len(prepared)
			prepared = append(prepared, h)
		}
	}
	for _, gone := range kept {
		if c, err := gone.client(); err == nil {
			c.close()
		}
	}
	s.seen, s.prepared = client.Identities(now), prepared
	return prepared, nil
}

// hookWrite is a write in the forms that hooks request, each encoded once.
type hookWrite struct {
	*admission.Attributes
	config *Config
	forms  map[admission.Form]*encoded
	input  map[admission.Form]cel.Input
}

type encoded struct {
	*admission.Versioned
	object, oldObject []byte
}

func newHookWrite(a *admission.Attributes, config *Config) *hookWrite {
	return &hookWrite{Attributes: a, config: config, forms: map[admission.Form]*encoded{}, input: map[admission.Form]cel.Input{}}
}

// changed drops the forms after a change of the object.
func (s *hookWrite) changed() {
	clear(s.forms)
	clear(s.input)
}

func (s *hookWrite) in(form admission.Form) (*encoded, error) {
	if e, ok := s.forms[form]; ok {
		return e, nil
	}
	v, err := s.In(s.config.Served, form)
	if err != nil {
		return nil, err
	}
	e := &encoded{Versioned: v}
	s.forms[form] = e
	s.input[form] = v.Expressions(s.config.Authorizer, nil)
	return e, nil
}

// encode encodes the objects as JSON.
func (e *encoded) encode() (err error) {
	if e.object == nil && e.Object != nil {
		if e.object, err = encodeObject(e.Object); err != nil {
			return err
		}
	}
	if e.oldObject == nil && e.OldObject != nil {
		e.oldObject, err = encodeObject(e.OldObject)
	}
	return err
}

// match returns the write in the form that the hook matches; nil if it does not match.
func (h *hook) match(ctx context.Context, s *hookWrite, namespaces admission.Namespaces) (*encoded, error) {
	form, ok, err := h.matcher.Matches(ctx, s.Attributes, s.config.Served, namespaces)
	if err != nil {
		if isStatus(err) {
			return nil, err
		}
		return nil, apierrors.NewInternalError(err)
	}
	if !ok {
		return nil, nil
	}
	e, err := s.in(form)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	switch ok, err = h.conditions.Match(ctx, s.Attributes, s.input[form]); {
	case err != nil && !h.ignoreFailure:
		return nil, apierrors.NewForbidden(s.Resource.GroupResource(), s.Name, err)
	case !ok:
		h.metrics.WebhookExcluded(h.name, h.kind, string(s.Operation))
		return nil, nil
	}
	if s.DryRun && !h.dryRunSafe {
		err := apierrors.NewBadRequest(fmt.Sprintf("admission webhook %q does not support dry run", h.name))
		h.measure(s, outcomeOf(nil, err), 0)
		return nil, err
	}
	return e, nil
}

// callError is a failed call of a hook, or an invalid answer.
type callError struct {
	reason error
	code   int // for the metrics
}

func (b *callError) Error() string { return b.reason.Error() }

func (b *callError) Unwrap() error { return b.reason }

// outcome is the result of a call; errorType is empty if the write may continue.
type outcome struct {
	errorType  string
	code       int
	clientLeft bool // the client left before there was an answer
}

// Metric labels of errors other than a refusal by the hook.
const (
	callingError  = "calling_webhook_error"
	internalError = "apiserver_internal_error"
)

func outcomeOf(a *answer, err error) outcome {
	var broken *callError
	switch {
	case errors.As(err, &broken):
		return outcome{errorType: callingError, code: broken.code, clientLeft: errors.Is(err, context.Canceled)}
	case a != nil && !a.allowed:
		return outcome{errorType: measure.NoError, code: refusalCode(a.result)}
	case err != nil:
		return outcome{errorType: internalError}
	}
	return outcome{code: http.StatusOK}
}

// maxMeasuredCode replaces all higher codes, because webhooks could otherwise create any number of
// series.
const maxMeasuredCode = 600

// measure counts one call of the hook and its outcome.
func (h *hook) measure(s *hookWrite, o outcome, took time.Duration) {
	operation, code := string(s.Operation), min(o.code, maxMeasuredCode)
	rejected := o.errorType != "" && (o.errorType != callingError || !h.ignoreFailure)
	h.metrics.Webhook(h.name, h.kind, operation, code, rejected, took)
	if rejected && !o.clientLeft {
		h.metrics.WebhookRejected(h.name, h.kind, operation, o.errorType, code)
	}
}

// failed applies the hook's failure policy to a failed call; other errors are returned unchanged.
// The audit annotation has the hook's index: for mutating hooks among all, for validating ones
// among the called ones.
func (h *hook) failed(s *hookWrite, kind string, round, index int, err error) error {
	var broken *callError
	switch {
	case !errors.As(err, &broken):
		return err
	case !h.ignoreFailure:
		h.log().Warn("failed calling webhook, failing closed", "webhook", h.name, "err", err)
		return apierrors.NewInternalError(fmt.Errorf("failed calling webhook %q: %w", h.name, err))
	case errors.Is(err, context.Canceled):
		h.log().Warn("context canceled when calling webhook", "webhook", h.name)
		return nil
	}
	h.log().Warn("failed calling webhook, failing open", "webhook", h.name, "err", err)
	h.metrics.WebhookFailedOpen(h.name, h.kind)
	s.Annotate(fmt.Sprintf("failed-open.%s.webhook.admission.k8s.io/round_%d_index_%d", kind, round, index), h.name)
	return nil
}

func isStatus(err error) bool {
	var s apierrors.APIStatus
	return errors.As(err, &s)
}
