package verb

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
	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/auth/jws"
)

// VirtualGet returns objects that are not stored as such: scales, component statuses, resource
// metrics.
func (op *Operation) VirtualGet(ctx context.Context, opts *metav1.GetOptions) (obj runtime.Object, handled bool, err error) {
	if op.Subresource == "scale" {
		obj, err = op.getScale(ctx, opts)
		return obj, true, err
	}
	if !op.Endpoint.Kind.Virtual {
		return nil, false, nil
	}
	if op.Endpoint.Resource.Group == metricsv1beta1.GroupName {
		obj, err = op.resourceMetricsOf(ctx)
		return obj, true, err
	}
	for _, status := range op.Engine.Components(ctx, func(name string) bool { return name == op.Name }) {
		return status, true, nil
	}
	// Upstream's error has this name.
	return nil, true, apierrors.NewNotFound(schema.GroupResource{Resource: "componentstatus"}, op.Name)
}

// VirtualList returns the selected objects of a kind that is not stored.
func (op *Operation) VirtualList(ctx context.Context, req *registry.ListRequest) (objs []runtime.Object, handled bool, err error) {
	if !op.Endpoint.Kind.Virtual {
		return nil, false, nil
	}
	if op.Endpoint.Resource.Group == metricsv1beta1.GroupName {
		objs, err = op.resourceMetrics(ctx, req)
		return objs, true, err
	}
	// Component statuses have no labels.
	return op.Engine.Components(ctx, func(name string) bool {
		return req.Labels.Matches(labels.Set{}) && req.Fields.Matches(fields.Set{metav1.ObjectNameField: name})
	}), true, nil
}

// virtualCreate handles objects that are posted to subresources and to kinds that are not stored.
func (op *Operation) virtualCreate(ctx context.Context, obj runtime.Object) (out runtime.Object, handled bool, err error) {
	if op.Subresource == "" && !op.Endpoint.Kind.Virtual {
		return nil, false, nil
	}
	if op.Subresource == "" { // clear the fields that only the server sets on stored objects
		meta := wire.Accessor(obj)
		meta.SetUID("")
		meta.SetCreationTimestamp(metav1.Time{})
		meta.SetDeletionTimestamp(nil)
		meta.SetDeletionGracePeriodSeconds(nil)
		meta.SetSelfLink("")
	}
	meta := wire.Accessor(obj)
	switch obj.(type) {
	case *policyv1.Eviction, *corev1.Binding:
		if ns := meta.GetNamespace(); ns != "" && ns != op.Namespace && op.Subresource != "" {
			return nil, true, wire.ErrNamespaceMismatch
		}
	}
	switch obj.(type) {
	case *authenticationv1.TokenRequest, *corev1.Binding:
		if meta.GetNamespace() == "" {
			meta.SetNamespace(op.Namespace) // webhooks see the namespace
		}
		if op.Name == "" {
			op.Name = meta.GetName()
		}
	}
	attributes := op.Attributes(admission.Create, obj, nil)
	if err := op.Admit(ctx, attributes); err != nil {
		return nil, true, err
	}
	if err := op.ValidateAdmission(ctx, attributes); err != nil {
		return nil, true, err
	}
	switch o := obj.(type) {
	case *corev1.Binding:
		out, err = op.bind(ctx, o)
	case *policyv1.Eviction:
		out, err = op.evict(ctx, o)
	case *authenticationv1.TokenRequest:
		issuer := op.Engine.Access.Reviews().Issuer
		if issuer == nil {
			return nil, true, apierrors.NewInternalError(errors.New("this API server issues no service account tokens"))
		}
		out, err = op.issue(ctx, issuer, o)
	default:
		out, err = op.review(ctx, op.TrackFields(nil, obj))
	}
	return out, true, err
}

// issue issues a service account token.
func (op *Operation) issue(ctx context.Context, issuer TokenIssuer, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error) {
	var asked int64
	if request.Spec.ExpirationSeconds != nil {
		asked = *request.Spec.ExpirationSeconds
	}
	out, err := issuer.Issue(ctx, op.Namespace, op.Name, request)
	if err != nil {
		return nil, err
	}
	if given := *out.Spec.ExpirationSeconds; given < asked {
		op.Warn(fmt.Sprintf("requested expiration of %d seconds shortened to %d seconds", asked, given))
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
func (op *Operation) review(ctx context.Context, obj runtime.Object) (runtime.Object, error) {
	reviews, z := op.Engine.Access.Reviews(), op.Engine.Access.Authorizer()
	if meta, ok := obj.(metav1.Object); ok && (op.Namespace == "" || meta.GetNamespace() == "") {
		meta.SetNamespace(op.Namespace)
	}
	switch o := obj.(type) {
	case *authenticationv1.TokenReview:
		if reviews.Tokens == nil {
			return nil, apierrors.NewInternalError(errors.New("this API server authenticates no tokens"))
		}
		return o, auth.ReviewToken(ctx, reviews.Tokens, reviews.Audiences, o)
	case *authenticationv1.SelfSubjectReview:
		return &authenticationv1.SelfSubjectReview{
			TypeMeta: o.TypeMeta, ObjectMeta: metav1.ObjectMeta{CreationTimestamp: op.Endpoint.Shared.Now()},
			Status: authenticationv1.SelfSubjectReviewStatus{UserInfo: auth.UserInfo(op.User)},
		}, nil
	case *authorizationv1.SubjectAccessReview:
		return o, auth.ReviewAccess(ctx, z, o)
	case *authorizationv1.SelfSubjectAccessReview:
		return o, auth.ReviewOwnAccess(ctx, z, op.User, o)
	case *authorizationv1.LocalSubjectAccessReview:
		return o, auth.ReviewLocalAccess(ctx, z, op.Namespace, o)
	case *authorizationv1.SelfSubjectRulesReview:
		if reviews.Rules == nil {
			return nil, apierrors.NewInternalError(errors.New("this API server's authorizer cannot list rules"))
		}
		if err := reviews.Rules.ReviewRules(op.User, o); err != nil {
			return nil, err
		}
		// The answer does not repeat the request.
		return &authorizationv1.SelfSubjectRulesReview{TypeMeta: o.TypeMeta, Status: o.Status}, nil
	}
	return nil, wire.ErrMethodNotAllowed
}
