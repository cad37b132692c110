package admission

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/resource/core"
)

// LimitedResource is a resource that only namespaces with a quota for it may use
// (ResourceQuotaConfiguration of apiserver.config.k8s.io/v1).
type LimitedResource struct {
	APIGroup string `json:"apiGroup"`
	Resource string `json:"resource"`
	// MatchContains are substrings of quota resource names, such as
	// ".storageclass.storage.k8s.io/requests.storage".
	MatchContains []string `json:"matchContains"`
	// MatchScopes are scopes that each need a quota with that scope.
	MatchScopes []corev1.ScopedResourceSelectorRequirement `json:"matchScopes"`
}

// restrict refuses limited resources that no quota of the namespace covers. It does not check how
// much the quotas leave.
func (p resourceQuota) restrict(a *Attributes, quotas []*corev1.ResourceQuota, delta corev1.ResourceList) error {
	limited := map[corev1.ResourceName]bool{}
	var scopes []corev1.ScopedResourceSelectorRequirement
	for _, l := range p.limited {
		if l.APIGroup != a.Resource.Group || l.Resource != a.Resource.Resource {
			continue
		}
		for name, value := range delta {
			if value.Sign() > 0 && slices.ContainsFunc(l.MatchContains, func(part string) bool { return strings.Contains(string(name), part) }) {
				limited[name] = true
			}
		}
		for _, scope := range l.MatchScopes {
			if core.QuotaInScope(scope, a.Object) {
				scopes = append(scopes, scope)
			}
		}
	}
	for _, quota := range quotas {
		if core.QuotaConcerns(quota, a.Object) {
			for name := range quota.Status.Hard {
				delete(limited, name)
			}
		}
		for _, own := range core.QuotaScopes(quota) {
			if core.QuotaInScope(own, a.Object) {
				scopes = slices.DeleteFunc(scopes, func(s corev1.ScopedResourceSelectorRequirement) bool { return s.ScopeName == own.ScopeName })
			}
		}
	}
	if len(limited) > 0 {
		var names []string
		for _, name := range slices.Sorted(maps.Keys(limited)) {
			names = append(names, string(name))
		}
		return a.forbid(fmt.Errorf("insufficient quota to consume: %s", strings.Join(names, ",")))
	}
	if len(scopes) > 0 {
		return internalServerError(fmt.Errorf("insufficient quota to match these scopes: %v", scopes))
	}
	return nil
}
