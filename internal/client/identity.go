package client

import (
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

// Identity distinguishes states of objects. Pointers do not: a View may show the same state as
// another copy.
type Identity struct {
	UID             types.UID
	ResourceVersion string
}

// IdentityOf returns the object's Identity.
func IdentityOf(obj Object) Identity { return Identity{obj.GetUID(), obj.GetResourceVersion()} }

// Identities returns the Identity of each object.
func Identities[T Object](list []T) []Identity {
	out := make([]Identity, len(list))
	for i, obj := range list {
		out[i] = IdentityOf(obj)
	}
	return out
}

// Same reports whether the objects are still in the same states.
func Same[T Object](before []Identity, list []T) bool {
	return slices.EqualFunc(before, list, func(a Identity, b T) bool { return a == IdentityOf(b) })
}
