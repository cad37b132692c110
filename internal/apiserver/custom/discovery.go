package custom

import (
	"cmp"
	"slices"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/api/discovery"
)

var (
	allVerbs = metav1.Verbs{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
	// terminatingVerbs are the verbs of a kind whose definition is being deleted.
	terminatingVerbs = metav1.Verbs{"delete", "deletecollection", "get", "list", "watch"}
	subresourceVerbs = metav1.Verbs{"get", "patch", "update"}
)

// Discovery describes the kinds of established definitions for discovery.
func Discovery(all []*apiextensionsv1.CustomResourceDefinition) []discovery.GroupVersion {
	all = slices.SortedFunc(slices.Values(all), func(a, b *crd) int { return cmp.Compare(a.Name, b.Name) })
	at := map[schema.GroupVersion]int{}
	var list []discovery.GroupVersion
	for _, c := range all {
		for i := range c.Spec.Versions {
			v := &c.Spec.Versions[i]
			if !v.Served {
				continue
			}
			gv := schema.GroupVersion{Group: c.Spec.Group, Version: v.Name}
			n, ok := at[gv]
			if !ok {
				n = len(list)
				at[gv] = n
				list = append(list, discovery.GroupVersion{GroupVersion: gv, GroupPriority: discovery.CustomGroupPriority, VersionPriority: discovery.CustomVersionPriority,
					Explicit: true})
			}
			list[n].Resources = append(list[n].Resources, resourcesOf(c, v)...)
		}
	}
	return list
}

func resourcesOf(c *crd, v *apiextensionsv1.CustomResourceDefinitionVersion) []metav1.APIResource {
	names, namespaced := &c.Status.AcceptedNames, c.Spec.Scope == apiextensionsv1.NamespaceScoped
	verbs := allVerbs
	if Terminating(c) {
		verbs = terminatingVerbs
	}
	r := metav1.APIResource{Name: names.Plural, SingularName: names.Singular, Namespaced: namespaced, Kind: names.Kind, Verbs: verbs,
		ShortNames: names.ShortNames, Categories: names.Categories}
	for i := range c.Spec.Versions {
		if c.Spec.Versions[i].Storage {
			r.StorageVersionHash = discovery.StorageVersionHash(schema.GroupVersionKind{Group: c.Spec.Group, Version: c.Spec.Versions[i].Name, Kind: names.Kind})
		}
	}
	list := []metav1.APIResource{r}
	if v.Subresources != nil && v.Subresources.Status != nil {
		list = append(list, metav1.APIResource{Name: names.Plural + "/status", Namespaced: namespaced, Kind: names.Kind, Verbs: subresourceVerbs})
	}
	if v.Subresources != nil && v.Subresources.Scale != nil {
		list = append(list, metav1.APIResource{Group: scaleKind.Group, Version: scaleKind.Version, Kind: scaleKind.Kind, Name: names.Plural + "/scale",
			Namespaced: namespaced, Verbs: subresourceVerbs})
	}
	return list
}
