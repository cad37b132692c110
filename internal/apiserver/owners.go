package apiserver

import (
	"fmt"
	"slices"
	"strings"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// afterAdmission is when owners were doubled by a plugin or a webhook.
const afterAdmission = " after mutating admission happens"

// dropDoubledOwners leaves each owner of an object once, and tells the client of the others. Owners of one UID whose other fields differ stay, as
// upstream leaves them.
func (op *operation) dropDoubledOwners(meta metav1.Object, when string) {
	owners := meta.GetOwnerReferences()
	if len(owners) < 2 {
		return
	}
	var once []metav1.OwnerReference
	var doubled []string
	for _, o := range owners {
		if slices.ContainsFunc(once, func(other metav1.OwnerReference) bool {
			return o.UID == other.UID && apiequality.Semantic.DeepEqual(o, other)
		}) {
			doubled = append(doubled, string(o.UID))
		} else {
			once = append(once, o)
		}
	}
	if len(doubled) == 0 {
		return
	}
	meta.SetOwnerReferences(once)
	op.warn(fmt.Sprintf(".metadata.ownerReferences contains duplicate entries%s; API server dedups owner references in 1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: %s",
		when, strings.Join(doubled, ", ")))
}
