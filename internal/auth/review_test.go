package auth

import (
	"errors"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A review reports all its errors at once, as upstream's.
func TestInvalidReviewsReportAllErrors(t *testing.T) {
	labels := func(r ...metav1.LabelSelectorRequirement) *authorizationv1.ResourceAttributes {
		return &authorizationv1.ResourceAttributes{LabelSelector: &authorizationv1.LabelSelectorAttributes{Requirements: r}}
	}
	cases := []struct {
		name     string
		resource *authorizationv1.ResourceAttributes
		path     *authorizationv1.NonResourceAttributes
		want     []string
	}{
		{"an operator that this server does not know", labels(metav1.LabelSelectorRequirement{Key: "a", Operator: "x"}), nil, nil},
		{"a key that is none", labels(metav1.LabelSelectorRequirement{Key: "a b", Operator: "Exists"}), nil, []string{"spec.resourceAttributes.labelSelector.requirements[0].key"}},
		{"a resource and a path, and a selector of nothing", &authorizationv1.ResourceAttributes{FieldSelector: &authorizationv1.FieldSelectorAttributes{}}, &authorizationv1.NonResourceAttributes{},
			[]string{"spec.nonResourceAttributes", "spec.resourceAttributes.fieldSelector.requirements"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, e := range validateAccess(c.resource, c.path) {
				got = append(got, e.Field)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
	err := ReviewLocalAccess(t.Context(), nil, "a", &authorizationv1.LocalSubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: "u", ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: "b"}, NonResourceAttributes: &authorizationv1.NonResourceAttributes{}}})
	var status apierrors.APIStatus
	if !errors.As(err, &status) || len(status.Status().Details.Causes) != 3 {
		t.Errorf("a path and another namespace: %v", err)
	}
}

func TestUnknownSelectorsAreReported(t *testing.T) {
	for name, tc := range map[string]struct {
		attributes authorizationv1.ResourceAttributes
		want       string
	}{
		"an operator for fields": {authorizationv1.ResourceAttributes{FieldSelector: &authorizationv1.FieldSelectorAttributes{
			Requirements: []metav1.FieldSelectorRequirement{{Key: "a", Operator: "x", Values: []string{"b"}}}}}, "spec.resourceAttributes.fieldSelector ignored due to parse error"},
		"an operator for labels": {authorizationv1.ResourceAttributes{LabelSelector: &authorizationv1.LabelSelectorAttributes{
			Requirements: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "x"}}}}, "spec.resourceAttributes.labelSelector ignored due to parse error"},
		"known ones": {authorizationv1.ResourceAttributes{FieldSelector: &authorizationv1.FieldSelectorAttributes{
			Requirements: []metav1.FieldSelectorRequirement{{Key: "a", Operator: "In", Values: []string{"b", "c"}}}}}, ""},
	} {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "u", ResourceAttributes: &tc.attributes}}
		if err := ReviewAccess(t.Context(), Authorizers{}, review); err != nil || review.Status.EvaluationError != tc.want {
			t.Errorf("%s: %v %q", name, err, review.Status.EvaluationError)
		}
	}
}
