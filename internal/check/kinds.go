package check

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver/custom"
	"github.com/knarr-project/knarr/internal/architecture"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/strategy"
)

// kind is a kind in one version, built-in or of a definition among the files.
type kind struct {
	*api.Kind
	gvk      schema.GroupVersionKind // as in the file
	strategy *strategy.Strategy      // nil for kinds that are never stored
	custom   *custom.Version         // nil for built-in kinds
	schema   *apiextensionsv1.JSONSchemaProps
}

func (k *kind) gvr() schema.GroupVersionResource {
	return k.gvk.GroupVersion().WithResource(k.Resource)
}

// hub returns the group and version of the kind's objects in memory.
func (k *kind) hub() schema.GroupVersion {
	if k.custom != nil {
		return k.gvk.GroupVersion()
	}
	if k.Alias != (schema.GroupResource{}) {
		if target, ok := api.ByResource(k.Alias); ok {
			return target.Kind.GroupVersion()
		}
	}
	return k.Kind.Kind.GroupVersion()
}

// kinds finds kinds: those of the API server, and those of definitions.
type kinds struct {
	custom map[schema.GroupVersionKind]*kind
	// broken are kinds whose definition has errors.
	broken map[schema.GroupKind]bool
}

func newKinds() *kinds {
	return &kinds{custom: map[schema.GroupVersionKind]*kind{}, broken: map[schema.GroupKind]bool{}}
}

// declare adds the kinds that a control plane of knarr defines: Components and Systems.
func (ks *kinds) declare() error {
	definitions, err := architecture.Definitions()
	if err != nil {
		return err
	}
	for _, d := range definitions {
		ks.define(d)
	}
	return nil
}

// find returns a served kind.
func (ks *kinds) find(gvk schema.GroupVersionKind) (*kind, bool) {
	if k, ok := ks.custom[gvk]; ok {
		return k, true
	}
	k, ok := api.ByKind(gvk.GroupKind())
	if !ok || !slices.Contains(served(k), gvk.Version) {
		return nil, false
	}
	return &kind{Kind: k, gvk: gvk, strategy: resource.For(k.GroupResource())}, true
}

func served(k *api.Kind) []string {
	if len(k.Served) == 0 {
		return []string{k.Kind.Version}
	}
	return k.Served
}

// byResource finds the kind of a resource.
func (ks *kinds) byResource(gvr schema.GroupVersionResource) (*kind, bool) {
	if k, ok := api.ByResource(gvr.GroupResource()); ok {
		return ks.find(k.Kind.GroupKind().WithVersion(gvr.Version))
	}
	for gvk, k := range ks.custom {
		if gvk.GroupVersion() == gvr.GroupVersion() && k.Resource == gvr.Resource {
			return k, true
		}
	}
	return nil, false
}

var errNoWebhooks = errors.New("conversion webhooks are not called without a cluster")

// define adds the kinds of a definition, as if the API server had accepted its names.
func (ks *kinds) define(crd *apiextensionsv1.CustomResourceDefinition) {
	crd = crd.DeepCopy()
	crd.Status.AcceptedNames = crd.Spec.Names
	crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{
		{Type: apiextensionsv1.NamesAccepted, Status: apiextensionsv1.ConditionTrue},
		{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue},
	}
	def := custom.NewDefinition(custom.Outline(crd), func() (*apiextensionsv1.CustomResourceDefinition, error) { return crd, nil }, noWebhooks, nil)
	for i := range crd.Spec.Versions {
		spec := &crd.Spec.Versions[i]
		v, ok := def.Version(spec.Name)
		if !ok {
			continue
		}
		k := &kind{Kind: v.Kind(), gvk: v.GVK(), strategy: v.Strategy(), custom: v}
		if spec.Schema != nil {
			k.schema = spec.Schema.OpenAPIV3Schema
		}
		ks.custom[v.GVK()] = k
	}
}

// unknown explains a kind that is not served. fixes are for apiVersion and kind.
type unknown struct {
	field    string // apiVersion or kind
	message  string
	nearest  []string
	severity Severity
}

// explain says why a kind is not served, and which one was probably meant.
func (ks *kinds) explain(gvk schema.GroupVersionKind, closed bool) unknown {
	if ks.broken[gvk.GroupKind()] {
		return unknown{field: "kind", severity: Warning, message: "not checked: the definition of the kind has errors"}
	}
	if u, ok := removedKind(gvk); ok {
		return u
	}
	all := ks.all()
	var sameKind []schema.GroupVersionKind
	groupVersion, group := false, false
	for _, known := range all {
		if known.Kind == gvk.Kind {
			sameKind = append(sameKind, known)
		}
		groupVersion = groupVersion || known.GroupVersion() == gvk.GroupVersion()
		group = group || known.Group == gvk.Group
	}
	switch {
	case len(sameKind) > 0 && (group || !foreign(gvk.Group)):
		return ks.otherVersion(gvk, sameKind)
	case groupVersion:
		return unknown{field: "kind", severity: Error, message: fmt.Sprintf("there is no kind %q in %s", gvk.Kind, gvk.GroupVersion()), nearest: nearKinds(gvk, all)}
	case !group && ks.misspeltGroup(gvk, sameKind) != "":
		return unknown{field: "apiVersion", severity: Error, message: fmt.Sprintf("there is no API %q", gvk.GroupVersion()), nearest: []string{ks.misspeltGroup(gvk, sameKind)}}
	case !group && (foreign(gvk.Group) || strings.Contains(gvk.Group, ".") && nearest(gvk.GroupVersion().String(), groupVersions(all)) == nil):
		severity := Warning
		if closed {
			severity = Error
		}
		return unknown{field: "kind", severity: severity,
			message: fmt.Sprintf("not checked: no file defines the kind %q of %s; name the file of its CustomResourceDefinition with --crds", gvk.Kind, gvk.Group)}
	}
	return unknown{field: "apiVersion", severity: Error, message: fmt.Sprintf("there is no API %q", gvk.GroupVersion()), nearest: nearest(gvk.GroupVersion().String(), groupVersions(all))}
}

// misspeltGroup returns a similar apiVersion that has the kind; "" if there is none.
func (ks *kinds) misspeltGroup(gvk schema.GroupVersionKind, sameKind []schema.GroupVersionKind) string {
	if near := nearest(gvk.GroupVersion().String(), groupVersions(sameKind)); len(near) > 0 {
		return near[0]
	}
	return ""
}

// otherVersion explains a kind that exists in other versions or groups only.
func (ks *kinds) otherVersion(gvk schema.GroupVersionKind, have []schema.GroupVersionKind) unknown {
	u := unknown{field: "apiVersion", severity: Error}
	var own, names []string
	for _, known := range have {
		names = append(names, known.GroupVersion().String())
		if known.Group == gvk.Group {
			own = append(own, known.GroupVersion().String())
		}
	}
	if len(own) > 0 {
		names = own
	}
	u.message = fmt.Sprintf("%s is not served in %q; it is in %s", gvk.Kind, gvk.GroupVersion(), strings.Join(names, ", "))
	u.nearest = names[:1]
	return u
}

// nearKinds returns kinds with a similar name: of the same API if there are any, else of all.
func nearKinds(gvk schema.GroupVersionKind, all []schema.GroupVersionKind) []string {
	var here, everywhere []string
	for _, known := range all {
		everywhere = append(everywhere, known.Kind)
		if known.GroupVersion() == gvk.GroupVersion() {
			here = append(here, known.Kind)
		}
	}
	if near := nearest(gvk.Kind, here); near != nil {
		return near
	}
	return nearest(gvk.Kind, everywhere)
}

// all returns all served kinds.
func (ks *kinds) all() (list []schema.GroupVersionKind) {
	for i := range api.Kinds() {
		k := &api.Kinds()[i]
		for _, version := range served(k) {
			list = append(list, k.Kind.GroupKind().WithVersion(version))
		}
	}
	added := slices.Collect(maps.Keys(ks.custom))
	slices.SortFunc(added, func(a, b schema.GroupVersionKind) int { return strings.Compare(a.String(), b.String()) })
	return append(list, added...)
}

func groupVersions(all []schema.GroupVersionKind) (names []string) {
	for _, gvk := range all {
		if name := gvk.GroupVersion().String(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// foreign reports whether a group can be one of custom resources: it has a domain that is not
// Kubernetes' own.
func foreign(group string) bool {
	return strings.Contains(group, ".") && (!strings.HasSuffix(group, ".k8s.io") || group == "gateway.networking.k8s.io" || strings.HasSuffix(group, ".x-k8s.io"))
}

// nearest returns the known names that a misspelt one probably means.
func nearest(name string, known []string) []string {
	if len(name) > maxName {
		return nil
	}
	return config.Nearest(name, known[:min(len(known), maxKnown)])
}

const (
	// maxName is the length in bytes up to which misspelt names are compared with known ones.
	maxName = 100
	// maxKnown is the number of known names that a misspelt one is compared with.
	maxKnown = 2000
)

func noWebhooks(_ context.Context, _ *apiextensionsv1.WebhookClientConfig, _ []byte) ([]byte, error) {
	return nil, errNoWebhooks
}
