package verb

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AfterMutatingAdmission is part of the warning about owners that admission has duplicated.
const AfterMutatingAdmission = " after mutating admission happens"

// DropDuplicateOwners removes duplicate owner references, and warns the client about them. As
// upstream, references with the same UID but other differing fields stay.
func (op *Operation) DropDuplicateOwners(meta metav1.Object, when string) {
	owners := meta.GetOwnerReferences()
	if len(owners) < 2 {
		return
	}
	var once []metav1.OwnerReference
	var doubled []string
	// A map, because a body has room for tens of thousands of owners.
	seen := make(map[ownerKey]bool, len(owners))
	for _, o := range owners {
		if is := ownerKeyOf(o); seen[is] {
			doubled = append(doubled, string(o.UID))
		} else {
			seen[is] = true
			once = append(once, o)
		}
	}
	if len(doubled) == 0 {
		return
	}
	meta.SetOwnerReferences(once)
	op.Warn(fmt.Sprintf(".metadata.ownerReferences contains duplicate entries%s; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: %s",
		when, strings.Join(doubled, ", ")))
}

// ownerKey is an owner reference as a comparable value.
type ownerKey struct {
	reference                metav1.OwnerReference // without its pointers
	controller, blocks       bool
	hasController, hasBlocks bool
}

func ownerKeyOf(o metav1.OwnerReference) ownerKey {
	is := ownerKey{hasController: o.Controller != nil, hasBlocks: o.BlockOwnerDeletion != nil}
	is.controller = is.hasController && *o.Controller
	is.blocks = is.hasBlocks && *o.BlockOwnerDeletion
	o.Controller, o.BlockOwnerDeletion = nil, nil
	is.reference = o
	return is
}
