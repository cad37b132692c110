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

// ownerReferences (off by default) lets only those set owner references who may delete the object, and only those
// block an owner's deletion who may set the owner's finalizers.
type ownerReferences struct {
	base
	authorizer auth.Authorizer
}

func newOwnerReferences(z auth.Authorizer) Plugin {
	return ownerReferences{base{"OwnerReferencesPermissionEnforcement", []Operation{Create, Update}}, z}
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
		gvk := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
		finalize := auth.Attributes{User: a.User, Verb: "update", Group: gvk.Group, Version: gvk.Version, Resource: "*", Subresource: "finalizers", Name: ref.Name, Namespace: a.Namespace}
		if kind, ok := api.ByKind(gvk.GroupKind()); ok {
			finalize.Resource = kind.Resource
			if !kind.Namespaced {
				finalize.Namespace = ""
			}
		}
		if d, reason, err := p.authorizer.Authorize(ctx, finalize); d != auth.Allow {
			return a.forbid(fmt.Errorf("cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on: %v, %v", reason, err))
		}
	}
	return nil
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
