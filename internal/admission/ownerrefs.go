package admission

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/auth"
)

// ownerReferences (off by default) restricts owner references. Setting one needs permission to
// delete the object. Blocking the owner's deletion needs permission to set the owner's finalizers.
type ownerReferences struct {
	base
	authorizer auth.Authorizer
	served     Served
}

func newOwnerReferences(z auth.Authorizer, served Served) Plugin {
	return ownerReferences{base{"OwnerReferencesPermissionEnforcement", []Operation{Create, Update}}, z, served}
}

// Validate implements Validator.
func (p ownerReferences) Validate(ctx context.Context, a *Attributes) error {
	if a.is("", "pods", "binding") {
		return nil
	}
	refs, old := refsOf(a.Object), refsOf(a.OldObject)
	if equality.Semantic.DeepEqual(refs, old) {
		return nil
	}
	if a.Operation == Update {
		remove := auth.Attributes{
			User: a.User, Verb: "delete", Namespace: a.Namespace, Group: a.Resource.Group, Version: a.Resource.Version, Resource: a.Resource.Resource, Name: a.Name,
		}
		if d, reason, err := p.authorizer.Authorize(ctx, remove); d != auth.Allow {
			return a.forbid(fmt.Errorf("cannot set an ownerRef on a resource you can't delete: %v, %v", reason, err))
		}
	}
	for _, ref := range refs {
		if ref.BlockOwnerDeletion == nil || !*ref.BlockOwnerDeletion || slices.ContainsFunc(old, func(o metav1.OwnerReference) bool {
			return o.UID == ref.UID && o.BlockOwnerDeletion != nil && *o.BlockOwnerDeletion
		}) {
			continue
		}
		if err := p.mayFinalize(ctx, a, ref); err != nil {
			return a.forbid(err)
		}
	}
	return nil
}

// mayFinalize reports whether the user may set the owner's finalizers. For an owner of an unknown
// kind, the user needs this permission for all resources.
func (p ownerReferences) mayFinalize(ctx context.Context, a *Attributes, owner metav1.OwnerReference) error {
	gvk := schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind)
	resource, namespaced, known := p.kind(gvk)
	finalize := auth.Attributes{User: a.User, Verb: "update", Group: "*", Version: "*", Resource: "*", Subresource: "finalizers"}
	if known {
		finalize.Group, finalize.Version, finalize.Resource, finalize.Name = gvk.Group, gvk.Version, resource, owner.Name
		if namespaced {
			finalize.Namespace = a.Namespace
		}
	}
	d, reason, err := p.authorizer.Authorize(ctx, finalize)
	switch {
	case d == auth.Allow:
		return nil
	case !known:
		return fmt.Errorf("cannot set blockOwnerDeletion in this case because cannot find RESTMapping for APIVersion %s Kind %s: %w", owner.APIVersion, owner.Kind,
			&meta.NoKindMatchError{GroupKind: gvk.GroupKind(), SearchedVersions: []string{gvk.Version}})
	}
	return fmt.Errorf("cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: %v, %v", reason, err)
}

// kind returns the resource that serves a kind; without Served, it searches the built-in kinds.
func (p ownerReferences) kind(gvk schema.GroupVersionKind) (resource string, namespaced, ok bool) {
	if p.served != nil {
		found, namespaced, ok := p.served.ByKind(gvk)
		return found.Resource, namespaced, ok
	}
	if kind, ok := api.ByKind(gvk.GroupKind()); ok {
		return kind.Resource, kind.Namespaced, true
	}
	return "", false, false
}

func refsOf(obj any) []metav1.OwnerReference {
	if obj == nil {
		return nil
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return nil
	}
	return m.GetOwnerReferences()
}
