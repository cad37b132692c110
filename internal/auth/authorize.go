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

// Authorizers asks each in order until one allows or denies.
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

// IsResource reports whether the request is about an API object; otherwise Path is set.
func (a *Attributes) IsResource() bool { return a.Path == "" }

// IsReadOnly reports whether the verb changes nothing.
func (a *Attributes) IsReadOnly() bool {
	return a.Verb == "get" || a.Verb == "list" || a.Verb == "watch"
}

// Check returns a Forbidden StatusError unless the authorizer allows the request.
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

// Forbidden returns upstream's 403: `pods is forbidden: User "x" cannot list resource "pods" in API
// group "" in the namespace "y"`, followed by the authorizer's reason.
func Forbidden(a Attributes, reason string) *apierrors.StatusError {
	text := ForbiddenText(a)
	if reason != "" {
		text += ": " + reason
	}
	gr := schema.GroupResource{Group: a.Group, Resource: a.Resource}
	return apierrors.NewForbidden(gr, a.Name, errors.New(text))
}

// ForbiddenText returns only the sentence about the user, the verb and the resource.
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
