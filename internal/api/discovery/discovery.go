// Package discovery makes the documents that tell clients what the server serves: /api, /apis, one
// per group, one per version, and one of everything (aggregated discovery, KEP-3352).
//
// In: the kinds in the table of package api, and a Provider for the rest (custom resources,
// aggregated APIs). Out: encoded documents, made at the first request and kept until the Provider's
// revision changes.
package discovery

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"

	"github.com/knarr-project/knarr/internal/api"
)

// GroupVersion describes one version of a group.
type GroupVersion struct {
	schema.GroupVersion
	// Resources include subresources ("pods/status"), sorted by name.
	Resources []metav1.APIResource
	// GroupPriority orders groups, VersionPriority the versions of a group. Higher comes first;
	// equal ones are ordered by name, newer versions first. As upstream, custom resources have
	// CustomGroupPriority and CustomVersionPriority.
	GroupPriority   int32
	VersionPriority int32
	// Explicit repeats group and version at every kind of the aggregated document. Upstream does so
	// for custom resources but not for built-in kinds.
	Explicit bool
	// Stale means that the extension server does not answer. Resources are the last known ones, or
	// none.
	Stale bool
}

// Priorities of custom resources.
const (
	CustomGroupPriority   = 1000
	CustomVersionPriority = 100
)

// Provider adds group versions outside the table.
type Provider interface {
	// Revision grows with every change of GroupVersions.
	Revision() uint64
	GroupVersions() []GroupVersion
}

// Providers combines several providers. A group version of a later provider replaces one of an
// earlier provider or of the table.
type Providers []Provider

// Revision implements Provider.
func (all Providers) Revision() (sum uint64) {
	for _, p := range all {
		sum += p.Revision() // each of them only grows
	}
	return sum
}

// GroupVersions implements Provider.
func (all Providers) GroupVersions() (list []GroupVersion) {
	for _, p := range all {
		list = append(list, p.GroupVersions()...)
	}
	return list
}

// lastOfEach drops group versions that occur again later in the list.
func lastOfEach(all []GroupVersion) []GroupVersion {
	at := make(map[schema.GroupVersion]int, len(all))
	out := all[:0]
	for _, gv := range all {
		if i, ok := at[gv.GroupVersion]; ok {
			out[i] = gv
			continue
		}
		at[gv.GroupVersion] = len(out)
		out = append(out, gv)
	}
	return out
}

// priorities are those of the built-in groups. Upstream's aggregation layer serves
// apiregistration.k8s.io itself, so it leads.
var priorities = map[string]int32{
	"":                             18000,
	"apiregistration.k8s.io":       20000,
	"apps":                         17800,
	"events.k8s.io":                17750,
	"authentication.k8s.io":        17700,
	"authorization.k8s.io":         17600,
	"autoscaling":                  17500,
	"batch":                        17400,
	"certificates.k8s.io":          17300,
	"networking.k8s.io":            17200,
	"policy":                       17100,
	"rbac.authorization.k8s.io":    17000,
	"storage.k8s.io":               16800,
	"admissionregistration.k8s.io": 16700,
	"apiextensions.k8s.io":         16700,
	"scheduling.k8s.io":            16600,
	"coordination.k8s.io":          16500,
	"node.k8s.io":                  16300,
	"discovery.k8s.io":             16200,
	"resource.k8s.io":              16200,
	"flowcontrol.apiserver.k8s.io": 16100,
	"metrics.k8s.io":               100, // that of the metrics server in upstream's clusters
}

// builtinVersionPriority is the priority of a group's last version; earlier versions have multiples
// of it. A few groups have their own.
const builtinVersionPriority = 15

var versionPriorities = map[string]int32{"": 1, "resource.k8s.io": 21, "flowcontrol.apiserver.k8s.io": 21, "metrics.k8s.io": 100}

// BuiltIn returns the enabled kinds of the table as group versions, unordered. The core group has
// an empty name.
func BuiltIn(on *api.Switches) []GroupVersion {
	var all []GroupVersion
	at := map[schema.GroupVersion]int{}
	kinds := api.Kinds()
	for i := range kinds {
		k := &kinds[i]
		for rank, v := range k.Served {
			gv := schema.GroupVersion{Group: k.Kind.Group, Version: v}
			if !on.Serves(gv.WithResource(k.Resource)) {
				continue
			}
			n, ok := at[gv]
			if !ok {
				n = len(all)
				at[gv] = n
				all = append(all, GroupVersion{
					GroupVersion: gv, GroupPriority: priorities[gv.Group],
					VersionPriority: cmp.Or(versionPriorities[gv.Group], builtinVersionPriority) * int32(len(k.Served)-rank),
				})
			}
			all[n].Resources = append(all[n].Resources, resources(k, gv)...)
		}
	}
	for i := range all {
		slices.SortFunc(all[i].Resources, func(a, b metav1.APIResource) int { return strings.Compare(a.Name, b.Name) })
	}
	return all
}

// resources returns a kind and its subresources in one version.
func resources(k *api.Kind, gv schema.GroupVersion) []metav1.APIResource {
	r := metav1.APIResource{
		Name: k.Resource, SingularName: k.Singular, Namespaced: k.Namespaced, Kind: k.Kind.Kind,
		Verbs: k.AllVerbs(), ShortNames: k.ShortNames, Categories: k.Categories,
	}
	if !k.Virtual {
		r.StorageVersionHash = StorageVersionHash(k.StoredAs())
	}
	list := []metav1.APIResource{r}
	for _, s := range k.Subresources {
		sub := metav1.APIResource{Name: k.Resource + "/" + s.Name, Namespaced: k.Namespaced, Kind: s.Kind.Kind, Verbs: s.Verbs}
		if s.Kind.GroupVersion() != k.Kind.GroupVersion() {
			sub.Group, sub.Version = s.Kind.Group, s.Kind.Version
		}
		list = append(list, sub)
	}
	return list
}

// StorageVersionHash changes with the storage version. Clients that migrate stored objects compare
// it.
func StorageVersionHash(stored schema.GroupVersionKind) string {
	sum := sha256.Sum256([]byte(stored.Group + "/" + stored.Version + "/" + stored.Kind))
	return base64.StdEncoding.EncodeToString(sum[:8])
}

// sortGroupVersions sorts groups and their versions by preference.
func sortGroupVersions(all []GroupVersion) {
	top := map[string]int32{}
	for _, gv := range all {
		top[gv.Group] = max(top[gv.Group], gv.GroupPriority)
	}
	slices.SortStableFunc(all, func(a, b GroupVersion) int {
		if a.Group != b.Group {
			if d := top[b.Group] - top[a.Group]; d != 0 {
				return int(d)
			}
			return strings.Compare(a.Group, b.Group)
		}
		if d := b.VersionPriority - a.VersionPriority; d != 0 {
			return int(d)
		}
		return version.CompareKubeAwareVersionStrings(b.Version, a.Version)
	})
}

// groupsOf folds sorted versions into groups, without the core group.
func groupsOf(all []GroupVersion) []metav1.APIGroup {
	var groups []metav1.APIGroup
	for _, gv := range all {
		if gv.Group == "" {
			continue
		}
		v := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
		if n := len(groups); n > 0 && groups[n-1].Name == gv.Group {
			groups[n-1].Versions = append(groups[n-1].Versions, v)
			continue
		}
		groups = append(groups, metav1.APIGroup{Name: gv.Group, PreferredVersion: v, Versions: []metav1.GroupVersionForDiscovery{v}})
	}
	return groups
}

// aggregate makes the aggregated document from sorted versions.
func aggregate(all []GroupVersion) *apidiscoveryv2.APIGroupDiscoveryList {
	list := &apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: apidiscoveryv2.SchemeGroupVersion.String()},
		Items:    []apidiscoveryv2.APIGroupDiscovery{},
	}
	for _, gv := range all {
		v := apidiscoveryv2.APIVersionDiscovery{Version: gv.Version, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent, Resources: foldResources(gv)}
		if gv.Stale {
			v.Freshness = apidiscoveryv2.DiscoveryFreshnessStale
		}
		if n := len(list.Items); n > 0 && list.Items[n-1].Name == gv.Group {
			list.Items[n-1].Versions = append(list.Items[n-1].Versions, v)
			continue
		}
		list.Items = append(list.Items, apidiscoveryv2.APIGroupDiscovery{
			ObjectMeta: metav1.ObjectMeta{Name: gv.Group}, Versions: []apidiscoveryv2.APIVersionDiscovery{v},
		})
	}
	return list
}

// foldResources moves subresources below their resource.
func foldResources(gv GroupVersion) []apidiscoveryv2.APIResourceDiscovery {
	var list []apidiscoveryv2.APIResourceDiscovery
	find := func(name string) *apidiscoveryv2.APIResourceDiscovery {
		for i := range list {
			if list[i].Resource == name {
				return &list[i]
			}
		}
		list = append(list, apidiscoveryv2.APIResourceDiscovery{Resource: name})
		return &list[len(list)-1]
	}
	for _, r := range gv.Resources {
		scope := apidiscoveryv2.ScopeCluster
		if r.Namespaced {
			scope = apidiscoveryv2.ScopeNamespace
		}
		kind := &metav1.GroupVersionKind{Group: r.Group, Version: r.Version, Kind: r.Kind}
		if gv.Explicit && r.Version == "" {
			kind.Group, kind.Version = gv.Group, gv.Version
		}
		parent, sub, isSub := strings.Cut(r.Name, "/")
		d := find(parent)
		d.Scope = scope
		if isSub {
			d.Subresources = append(d.Subresources, apidiscoveryv2.APISubresourceDiscovery{Subresource: sub, ResponseKind: kind, Verbs: r.Verbs})
			continue
		}
		d.ResponseKind, d.SingularResource = kind, r.SingularName
		d.Verbs, d.ShortNames, d.Categories = r.Verbs, r.ShortNames, r.Categories
	}
	return list
}
