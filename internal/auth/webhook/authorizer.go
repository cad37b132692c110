package webhook

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	apiserverconfig "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/validation"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/cel"
	"github.com/knarr-project/knarr/internal/egress"
	"github.com/knarr-project/knarr/internal/memo"
)

// Authorizer asks a webhook.
type Authorizer struct {
	name       string
	server     *server
	allowFor   time.Duration // how long an answer is remembered; 0 means not at all
	refuseFor  time.Duration
	failure    auth.Decision
	conditions *authorizationcel.CELMatcher
	now        func() time.Time
	metrics    *Metrics
	answers    memo.Memo[[sha256.Size]byte, answer]
}

var errBoth = errors.New("webhook subject access review returned both allow and deny response")

type answer struct {
	decision auth.Decision
	reason   string
	until    time.Time
}

// rememberedAnswers limits the memory that requests of strangers can take up.
const rememberedAnswers = 4096

// newAuthorizer returns the authorizer of a validated configuration.
func newAuthorizer(name string, c *apiserverconfig.WebhookConfiguration, now func() time.Time, metrics *Metrics, dial egress.Dial) (*Authorizer, error) {
	if c.ConnectionInfo.Type != apiserverconfig.AuthorizationWebhookConnectionInfoTypeKubeConfigFile || c.ConnectionInfo.KubeConfigFile == nil {
		// InClusterConfig would make the API server ask itself. It is for other servers.
		return nil, fmt.Errorf("authorizer %s: connectionInfo.type %q is not allowed for the API server itself, only KubeConfigFile", name, c.ConnectionInfo.Type)
	}
	s, err := newServer(*c.ConnectionInfo.KubeConfigFile, c.Timeout.Duration, dial)
	if err != nil {
		return nil, fmt.Errorf("authorizer %s: %w", name, err)
	}
	a := &Authorizer{name: name, server: s, failure: auth.NoOpinion, now: now, metrics: metrics}
	a.answers.Size = rememberedAnswers
	if c.FailurePolicy == apiserverconfig.FailurePolicyDeny {
		a.failure = auth.Deny
	}
	if c.CacheAuthorizedRequests {
		a.allowFor = c.AuthorizedTTL.Duration
	}
	if c.CacheUnauthorizedRequests {
		a.refuseFor = c.UnauthorizedTTL.Duration
	}
	if len(c.MatchConditions) > 0 {
		matcher, errs := validation.ValidateAndCompileMatchConditions(authorizationcel.NewCompiler(cel.Environments()), c.MatchConditions)
		if len(errs) > 0 {
			return nil, fmt.Errorf("authorizer %s: %w", name, errs.ToAggregate())
		}
		matcher.Metrics = metrics
		matcher.AuthorizerType, matcher.AuthorizerName = string(apiserverconfig.TypeWebhook), name
		a.conditions = matcher
	}
	return a, nil
}

// Authorize implements auth.Authorizer.
func (a *Authorizer) Authorize(ctx context.Context, attributes auth.Attributes) (auth.Decision, string, error) {
	review := &authorizationv1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{Kind: "SubjectAccessReview", APIVersion: authorizationv1.SchemeGroupVersion.String()}, Spec: spec(&attributes),
	}
	if a.conditions != nil {
		matches, err := a.conditions.Eval(ctx, review)
		switch {
		case err != nil:
			return a.failure, "", err
		case !matches:
			return auth.NoOpinion, "", nil
		}
	}
	text, err := json.Marshal(review.Spec)
	if err != nil {
		return a.failure, "", err
	}
	key := sha256.Sum256(text)
	if known, ok := a.answers.Get(key); ok && a.now().Before(known.until) {
		return known.decision, known.reason, nil
	}
	err = a.server.ask(ctx, review, func(err error, took time.Duration) { a.metrics.webhook(a.name, err, took) })
	if err != nil {
		a.metrics.failed(a.name, err, a.failure)
		return a.failure, "", err
	}
	got := answer{decision: auth.NoOpinion, reason: review.Status.Reason}
	remember := a.refuseFor
	switch {
	case review.Status.Allowed && review.Status.Denied:
		return auth.Deny, "", errBoth // a refusal, whatever the failure policy
	case review.Status.Allowed:
		got.decision, remember = auth.Allow, a.allowFor
	case review.Status.Denied:
		got.decision = auth.Deny
	}
	if remember > 0 {
		got.until = a.now().Add(remember)
		a.answers.Put(key, got)
	}
	return got.decision, got.reason, nil
}

func spec(a *auth.Attributes) authorizationv1.SubjectAccessReviewSpec {
	s := authorizationv1.SubjectAccessReviewSpec{User: a.User.Name, UID: a.User.UID, Groups: a.User.Groups}
	for k, v := range a.User.Extra {
		if s.Extra == nil {
			s.Extra = map[string]authorizationv1.ExtraValue{}
		}
		s.Extra[k] = v
	}
	if !a.IsResource() {
		s.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: a.Path, Verb: a.Verb}
		return s
	}
	s.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Namespace: a.Namespace, Verb: a.Verb, Group: a.Group, Version: a.Version, Resource: a.Resource, Subresource: a.Subresource, Name: a.Name,
		FieldSelector: fieldSelector(a.FieldSelector), LabelSelector: labelSelector(a.LabelSelector),
	}
	return s
}

// fieldSelector and labelSelector return nil for an invalid selector: the request is then
// authorized as one without a selector.
func fieldSelector(raw string) *authorizationv1.FieldSelectorAttributes {
	selector, err := fields.ParseSelector(raw)
	if raw == "" || err != nil {
		return nil
	}
	var out authorizationv1.FieldSelectorAttributes
	for _, r := range selector.Requirements() {
		operator := metav1.FieldSelectorOpIn
		if r.Operator == selection.NotEquals {
			operator = metav1.FieldSelectorOpNotIn
		}
		out.Requirements = append(out.Requirements, metav1.FieldSelectorRequirement{Key: r.Field, Operator: operator, Values: []string{r.Value}})
	}
	return &out
}

func labelSelector(raw string) *authorizationv1.LabelSelectorAttributes {
	selector, err := metav1.ParseToLabelSelector(raw)
	if _, bad := labels.Parse(raw); raw == "" || err != nil || bad != nil {
		return nil
	}
	out := &authorizationv1.LabelSelectorAttributes{Requirements: selector.MatchExpressions}
	// Sorted, since the request is the key of the remembered answer.
	for _, k := range slices.Sorted(maps.Keys(selector.MatchLabels)) {
		out.Requirements = append(out.Requirements, metav1.LabelSelectorRequirement{Key: k, Operator: metav1.LabelSelectorOpIn, Values: []string{selector.MatchLabels[k]}})
	}
	return out
}
