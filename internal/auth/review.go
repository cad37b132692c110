package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/api"
)

// ReviewAccess answers a SubjectAccessReview: it sets the status, or returns the StatusError of an
// invalid request.
func ReviewAccess(ctx context.Context, z Authorizer, review *authorizationv1.SubjectAccessReview) error {
	errs := validateAccess(review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
	if review.Spec.User == "" && len(review.Spec.Groups) == 0 {
		errs = append(errs, field.Invalid(field.NewPath("spec").Child("user"), review.Spec.User, "at least one of user or group must be specified"))
	}
	errs = append(errs, noMetadata(review.ObjectMeta, "", "must be empty")...)
	if len(errs) > 0 {
		return invalidReview(errs)
	}
	user := User{Name: review.Spec.User, UID: review.Spec.UID, Groups: review.Spec.Groups, Extra: extraOf(review.Spec.Extra)}
	review.Status = evaluate(ctx, z, user, review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
	return nil
}

// ReviewOwnAccess answers a SelfSubjectAccessReview of the user.
func ReviewOwnAccess(ctx context.Context, z Authorizer, user User, review *authorizationv1.SelfSubjectAccessReview) error {
	errs := validateAccess(review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
	if errs = append(errs, noMetadata(review.ObjectMeta, "", "must be empty")...); len(errs) > 0 {
		return invalidReview(errs)
	}
	review.Status = evaluate(ctx, z, user, review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
	return nil
}

// ReviewLocalAccess answers a LocalSubjectAccessReview in the namespace of its path.
func ReviewLocalAccess(ctx context.Context, z Authorizer, namespace string, review *authorizationv1.LocalSubjectAccessReview) error {
	if review.Namespace != "" && review.Namespace != namespace {
		return apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	spec := field.NewPath("spec")
	errs := validateAccess(review.Spec.ResourceAttributes, review.Spec.NonResourceAttributes)
	if review.Spec.NonResourceAttributes != nil {
		errs = append(errs, field.Invalid(spec.Child("nonResourceAttributes"), review.Spec.NonResourceAttributes, "disallowed on this kind of request"))
	}
	if review.Spec.ResourceAttributes != nil && review.Spec.ResourceAttributes.Namespace != namespace {
		errs = append(errs, field.Invalid(spec.Child("resourceAttributes").Child("namespace"), review.Spec.ResourceAttributes.Namespace, "must match metadata.namespace"))
	}
	if review.Spec.User == "" && len(review.Spec.Groups) == 0 {
		errs = append(errs, field.Invalid(spec.Child("user"), review.Spec.User, "at least one of user or group must be specified"))
	}
	errs = append(errs, noMetadata(review.ObjectMeta, namespace, "must be empty except for namespace")...)
	if len(errs) > 0 {
		return invalidReview(errs)
	}
	user := User{Name: review.Spec.User, UID: review.Spec.UID, Groups: review.Spec.Groups, Extra: extraOf(review.Spec.Extra)}
	review.Status = evaluate(ctx, z, user, review.Spec.ResourceAttributes, nil)
	return nil
}

// noMetadata refuses metadata, which reviews do not have. It ignores managedFields, which the
// server writes.
func noMetadata(meta metav1.ObjectMeta, namespace, detail string) field.ErrorList {
	meta.ManagedFields = nil
	if equality.Semantic.DeepEqual(meta, metav1.ObjectMeta{}) || equality.Semantic.DeepEqual(meta, metav1.ObjectMeta{Namespace: namespace}) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata"), meta, detail)}
}

// invalidReview returns an error without the kind, as upstream does.
func invalidReview(errs field.ErrorList) error {
	return api.Invalid(schema.GroupKind{Group: authorizationv1.GroupName}, "", errs)
}

func validateAccess(resource *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) field.ErrorList {
	spec := field.NewPath("spec")
	var errs field.ErrorList
	switch {
	case resource != nil && path != nil:
		errs = append(errs, field.Invalid(spec.Child("nonResourceAttributes"), path, "cannot be specified in combination with resourceAttributes"))
	case resource == nil && path == nil:
		return field.ErrorList{field.Invalid(spec.Child("resourceAttributes"), resource, "exactly one of nonResourceAttributes or resourceAttributes must be specified")}
	case resource == nil:
		return nil
	}
	if s := resource.FieldSelector; s != nil {
		at := spec.Child("resourceAttributes", "fieldSelector")
		errs = append(errs, validateSelector(at, s.RawSelector, len(s.Requirements))...)
		for i := range s.Requirements {
			errs = append(errs, validateFieldRequirement(at.Child("requirements").Index(i), &s.Requirements[i])...)
		}
	}
	if s := resource.LabelSelector; s != nil {
		at := spec.Child("resourceAttributes", "labelSelector")
		errs = append(errs, validateSelector(at, s.RawSelector, len(s.Requirements))...)
		for i, r := range s.Requirements {
			at := at.Child("requirements").Index(i)
			// Clients may know newer operators than this server.
			unknown := at.Child("operator").String()
			errs = append(errs, slices.DeleteFunc(metav1validation.ValidateLabelSelectorRequirement(r, metav1validation.LabelSelectorValidationOptions{}, at),
				func(e *field.Error) bool { return e.Field == unknown })...)
		}
	}
	return errs
}

func validateSelector(at *field.Path, raw string, requirements int) field.ErrorList {
	switch {
	case raw != "" && requirements > 0:
		return field.ErrorList{field.Invalid(at.Child("rawSelector"), raw, "may not specified at the same time as requirements")}
	case raw == "" && requirements == 0:
		return field.ErrorList{field.Required(at.Child("requirements"), fmt.Sprintf("when %s is specified, requirements or rawSelector is required", at))}
	}
	return nil
}

func validateFieldRequirement(at *field.Path, r *metav1.FieldSelectorRequirement) field.ErrorList {
	var errs field.ErrorList
	if r.Key == "" {
		errs = append(errs, field.Required(at.Child("key"), "must be specified"))
	}
	switch r.Operator {
	case metav1.FieldSelectorOpIn, metav1.FieldSelectorOpNotIn:
		if len(r.Values) == 0 {
			errs = append(errs, field.Required(at.Child("values"), "must be specified when `operator` is 'In' or 'NotIn'"))
		}
	case metav1.FieldSelectorOpExists, metav1.FieldSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			errs = append(errs, field.Forbidden(at.Child("values"), "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"))
		}
	}
	return errs
}

var (
	errFieldSelector = errors.New("spec.resourceAttributes.fieldSelector ignored due to parse error")
	errLabelSelector = errors.New("spec.resourceAttributes.labelSelector ignored due to parse error")
	// fieldOperators lists the known operators.
	fieldOperators = []metav1.FieldSelectorOperator{metav1.FieldSelectorOpIn, metav1.FieldSelectorOpNotIn, metav1.FieldSelectorOpExists, metav1.FieldSelectorOpDoesNotExist}
)

func evaluate(ctx context.Context, z Authorizer, user User, resource *authorizationv1.ResourceAttributes, path *authorizationv1.NonResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
	var a Attributes
	var ignored []error
	if resource != nil {
		a = Attributes{
			Verb: resource.Verb, Namespace: resource.Namespace, Group: resource.Group, Version: resource.Version,
			Resource: resource.Resource, Subresource: resource.Subresource, Name: resource.Name,
		}
		if s := resource.FieldSelector; s != nil {
			a.FieldSelector = s.RawSelector
			if a.FieldSelector == "" {
				a.FieldSelector = fieldSelectorText(s.Requirements)
				if slices.ContainsFunc(s.Requirements, func(r metav1.FieldSelectorRequirement) bool { return !slices.Contains(fieldOperators, r.Operator) }) {
					ignored = append(ignored, errFieldSelector)
				}
			} else if _, err := fields.ParseSelector(a.FieldSelector); err != nil {
				a.FieldSelector, ignored = "", append(ignored, errFieldSelector)
			}
		}
		if s := resource.LabelSelector; s != nil {
			a.LabelSelector = s.RawSelector
			if a.LabelSelector == "" {
				var err error
				if a.LabelSelector, err = labelSelectorText(s.Requirements); err != nil {
					ignored = append(ignored, errLabelSelector)
				}
			} else if _, err := labels.Parse(a.LabelSelector); err != nil {
				a.LabelSelector, ignored = "", append(ignored, errLabelSelector)
			}
		}
	} else {
		a = Attributes{Verb: path.Verb, Path: path.Path}
		if a.Path == "" {
			a.Path = "/"
		}
	}
	a.User = user
	decision, reason, err := z.Authorize(ctx, a)
	status := authorizationv1.SubjectAccessReviewStatus{Allowed: decision == Allow, Denied: decision == Deny, Reason: reason}
	if err := utilerrors.NewAggregate(append(ignored, err)); err != nil {
		status.EvaluationError = err.Error()
	}
	return status
}

// fieldSelectorText writes the requirements that a raw field selector can express: key=value and
// key!=value. Others restrict the request further, so to omit them never widens a decision.
func fieldSelectorText(requirements []metav1.FieldSelectorRequirement) string {
	var terms []string
	for _, r := range requirements {
		if len(r.Values) != 1 {
			continue
		}
		switch r.Operator {
		case metav1.FieldSelectorOpIn:
			terms = append(terms, r.Key+"="+r.Values[0])
		case metav1.FieldSelectorOpNotIn:
			terms = append(terms, r.Key+"!="+r.Values[0])
		}
	}
	return strings.Join(terms, ",")
}

func labelSelectorText(requirements []metav1.LabelSelectorRequirement) (string, error) {
	selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchExpressions: requirements})
	if err != nil {
		return "", err
	}
	return selector.String(), nil
}

func extraOf[V ~[]string](in map[string]V) map[string][]string {
	if in == nil {
		return nil
	}
	out := make(map[string][]string, len(in))
	for k, v := range in {
		out[strings.ToLower(k)] = v
	}
	return out
}

// ReviewToken answers a TokenReview. audiences are the API server's, for a request that names none.
func ReviewToken(ctx context.Context, tokens TokenAuthenticator, audiences []string, review *authenticationv1.TokenReview) error {
	if review.Spec.Token == "" {
		return apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	// The rest of the status stays as sent unless the token is good, as upstream.
	review.Status.Authenticated = false
	asked := review.Spec.Audiences
	if len(asked) == 0 {
		asked = audiences
	}
	user, accepted, ok, err := tokens.AuthenticateToken(ctx, review.Spec.Token, asked)
	if !ok || err != nil {
		review.Status.Error = badToken(err).Error()
		return nil
	}
	review.Status.Authenticated = true
	review.Status.User = UserInfo(WithAuthenticatedGroup(user))
	review.Status.Audiences = slices.Clone(accepted)
	return nil
}

// UserInfo returns the user in the form of the API (TokenReview, SelfSubjectReview,
// AdmissionReview, audit).
func UserInfo(user User) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: user.Name, UID: user.UID, Groups: user.Groups}
	for k, v := range user.Extra {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[k] = v
	}
	return info
}
