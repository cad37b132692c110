package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/apiserver/audit"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/auth/jws"
)

// virtualGet returns objects that are not stored as such: scales, component statuses, resource
// metrics.
func (op *operation) virtualGet(ctx context.Context, opts *metav1.GetOptions) (obj runtime.Object, handled bool, err error) {
	if op.subresource == "scale" {
		obj, err = op.getScale(ctx, opts)
		return obj, true, err
	}
	if !op.endpoint.kind.Virtual {
		return nil, false, nil
	}
	if op.endpoint.resource.Group == metricsv1beta1.GroupName {
		obj, err = op.resourceMetricsOf(ctx)
		return obj, true, err
	}
	for _, status := range op.engine.components(ctx, func(name string) bool { return name == op.name }) {
		return status, true, nil
	}
	// Upstream's error has this name.
	return nil, true, apierrors.NewNotFound(schema.GroupResource{Resource: "componentstatus"}, op.name)
}

// virtualList returns the selected objects of a kind that is not stored.
func (op *operation) virtualList(ctx context.Context, req *listRequest) (objs []runtime.Object, handled bool, err error) {
	if !op.endpoint.kind.Virtual {
		return nil, false, nil
	}
	if op.endpoint.resource.Group == metricsv1beta1.GroupName {
		objs, err = op.resourceMetrics(ctx, req)
		return objs, true, err
	}
	// Component statuses have no labels.
	return op.engine.components(ctx, func(name string) bool {
		return req.labels.Matches(labels.Set{}) && req.fields.Matches(fields.Set{metav1.ObjectNameField: name})
	}), true, nil
}

// virtualCreate handles objects that are posted to subresources and to kinds that are not stored.
func (op *operation) virtualCreate(ctx context.Context, obj runtime.Object) (out runtime.Object, handled bool, err error) {
	if op.subresource == "" && !op.endpoint.kind.Virtual {
		return nil, false, nil
	}
	if op.subresource == "" { // clear the fields that only the server sets on stored objects
		meta := accessor(obj)
		meta.SetUID("")
		meta.SetCreationTimestamp(metav1.Time{})
		meta.SetDeletionTimestamp(nil)
		meta.SetDeletionGracePeriodSeconds(nil)
		meta.SetSelfLink("")
	}
	meta := accessor(obj)
	switch obj.(type) {
	case *policyv1.Eviction, *corev1.Binding:
		if ns := meta.GetNamespace(); ns != "" && ns != op.namespace && op.subresource != "" {
			return nil, true, errOtherNamespace
		}
	}
	switch obj.(type) {
	case *authenticationv1.TokenRequest, *corev1.Binding:
		if meta.GetNamespace() == "" {
			meta.SetNamespace(op.namespace) // webhooks see the namespace
		}
		if op.name == "" {
			op.name = meta.GetName()
		}
	}
	attributes := op.attributes(admission.Create, obj, nil)
	if err := op.admit(ctx, attributes); err != nil {
		return nil, true, err
	}
	if err := op.validateAdmission(ctx, attributes); err != nil {
		return nil, true, err
	}
	switch o := obj.(type) {
	case *corev1.Binding:
		out, err = op.bind(ctx, o)
	case *policyv1.Eviction:
		out, err = op.evict(ctx, o)
	case *authenticationv1.TokenRequest:
		issuer := op.engine.access.Reviews().issuer
		if issuer == nil {
			return nil, true, apierrors.NewInternalError(errors.New("this API server issues no service account tokens"))
		}
		out, err = op.issue(ctx, issuer, o)
	default:
		out, err = op.review(ctx, op.trackFields(op.endpoint.newObject(), obj))
	}
	return out, true, err
}

// issue issues a service account token.
func (op *operation) issue(ctx context.Context, issuer TokenIssuer, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	var asked int64
	if request.Spec.ExpirationSeconds != nil {
		asked = *request.Spec.ExpirationSeconds
	}
	out, err := issuer.Issue(ctx, op.namespace, op.name, request)
	if err != nil {
		return nil, err
	}
	if given := *out.Spec.ExpirationSeconds; given < asked {
		op.warn(fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds", asked, given))
	}
	if id := credentialOf(out.Status.Token); id != "" {
		audit.From(ctx).Annotate(issuedCredential, "JTI="+id)
	}
	return out, nil
}

// issuedCredential is the audit annotation with the issued token's ID; requests with the token have
// the same ID in their user's extra.
const issuedCredential = "authentication.kubernetes.io/issued-credential-id"

// credentialOf returns a token's ID (jti); "" if it cannot be read.
func credentialOf(token string) string {
	parts, ok := jws.Split(token)
	if !ok {
		return ""
	}
	var claims struct {
		ID string `json:"jti"`
	}
	if json.Unmarshal(parts.Payload, &claims) != nil {
		return ""
	}
	return claims.ID
}

// review answers the API's questions about users and permissions.
func (op *operation) review(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	reviews, z := op.engine.access.Reviews(), op.engine.access.Authorizer()
	if meta, ok := obj.(metav1.Object); ok && (op.namespace == "" || meta.GetNamespace() == "") {
		meta.SetNamespace(op.namespace)
	}
	switch o := obj.(type) {
	case *authenticationv1.TokenReview:
		if reviews.tokens == nil {
			return nil, apierrors.NewInternalError(errors.New("this API server authenticates no tokens"))
		}
		return o, auth.ReviewToken(ctx, reviews.tokens, reviews.audiences, o)
	case *authenticationv1.SelfSubjectReview:
		return &authenticationv1.SelfSubjectReview{
			TypeMeta: o.TypeMeta, ObjectMeta: metav1.ObjectMeta{CreationTimestamp: op.endpoint.shared.now()},
			Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: auth.UserInfo(op.user)},
		}, nil
	case *authorizationv1.SubjectAccessReview:
		return o, auth.ReviewAccess(ctx, z, o)
	case *authorizationv1.SelfSubjectAccessReview:
		return o, auth.ReviewOwnAccess(ctx, z, op.user, o)
	case *authorizationv1.LocalSubjectAccessReview:
		return o, auth.ReviewLocalAccess(ctx, z, op.namespace, o)
	case *authorizationv1.SelfSubjectRulesReview:
		if reviews.rules == nil {
			return nil, apierrors.NewInternalError(errors.New("this API server's authorizer can not list rules"))
		}
		if err := reviews.rules.ReviewRules(op.user, o); err != nil {
			return nil, err
		}
		// The answer does not repeat the request.
		return &authorizationv1.SelfSubjectRulesReview{TypeMeta: o.TypeMeta, Status: o.Status}, nil
	}
	return nil, errMethod
}
