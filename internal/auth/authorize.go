package auth

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// Authorizers asks each in order; the first that allows or denies decides.
type Authorizers []Authorizer

// Authorize implements Authorizer.
func (all Authorizers) Authorize(ctx context.Context, a Attributes) (Decision, string, error) {
	var reasons []string
	var errs []error
	for _, z := range all {
		decision, reason, err := z.Authorize(ctx, a)
		if err != nil {
			errs = append(errs, err)
		}
		if reason != "" {
			reasons = append(reasons, reason)
		}
		if decision != NoOpinion {
			return decision, reason, err
		}
	}
	return NoOpinion, strings.Join(reasons, "\n"), utilerrors.NewAggregate(errs)
}

// Masters allows everything to the group system:masters.
type Masters struct{}

// Authorize implements Authorizer.
func (Masters) Authorize(_ context.Context, a Attributes) (Decision, string, error) {
	if slices.Contains(a.User.Groups, GroupMasters) {
		return Allow, "", nil
	}
	return NoOpinion, "", nil
}

// IsResource says whether the request is about an API object (otherwise about Path).
func (a *Attributes) IsResource() bool { return a.Path == "" }

// IsReadOnly says whether the verb changes nothing.
func (a *Attributes) IsReadOnly() bool {
	return a.Verb == "get" || a.Verb == "list" || a.Verb == "watch"
}

// Check asks the authorizer and gives a Forbidden StatusError unless the request is allowed.
func Check(ctx context.Context, z Authorizer, a Attributes) error {
	decision, reason, err := z.Authorize(ctx, a)
	if decision == Allow {
		return nil
	}
	if err != nil && reason == "" {
		reason = err.Error()
	}
	return Forbidden(a, reason)
}

// Forbidden is the 403 that upstream's users know: `pods is forbidden: User "x" cannot list resource "pods" in API
// group "" in the namespace "y"`, with the authorizer's reason behind it.
func Forbidden(a Attributes, reason string) *apierrors.StatusError {
	text := ForbiddenText(a)
	if reason != "" {
		text += ": " + reason
	}
	gr := schema.GroupResource{Group: a.Group, Resource: a.Resource}
	return apierrors.NewForbidden(gr, a.Name, errors.New(text))
}

// ForbiddenText is the sentence about the user, the verb and the resource alone.
func ForbiddenText(a Attributes) string {
	if !a.IsResource() {
		return fmt.Sprintf("User %q cannot %s path %q", a.User.Name, a.Verb, a.Path)
	}
	resource := a.Resource
	if a.Subresource != "" {
		resource += "/" + a.Subresource
	}
	text := fmt.Sprintf("User %q cannot %s resource %q in API group %q", a.User.Name, a.Verb, resource, a.Group)
	if a.Namespace != "" {
		return fmt.Sprintf("%s in the namespace %q", text, a.Namespace)
	}
	return text + " at the cluster scope"
}
