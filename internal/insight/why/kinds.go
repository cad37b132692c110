package why

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/api"
)

// maxKinds bounds the number of custom kinds: their list comes from other servers, too.
const maxKinds = 2000

// customKind is a kind that is not built in, at its preferred version.
type customKind struct {
	resource      schema.GroupResource
	kind, version string
	namespaced    bool
	names         []string // singular and short names
}

// fullName is the Kind of a Ref.
func (k *customKind) fullName() string { return k.kind + "." + k.resource.Group }

// answersTo reports whether a user may mean the kind by this name, in lower case.
func (k *customKind) answersTo(name string) bool {
	name, group, _ := strings.Cut(name, ".")
	if group != "" && group != k.resource.Group {
		return false
	}
	return name == k.resource.Resource || name == strings.ToLower(k.kind) || slices.Contains(k.names, name)
}

// customKinds returns the kinds that the API server serves and that are not built in.
func (s *Snapshot) customKinds() ([]customKind, bool) {
	r := s.ask(need{what: "kinds"})
	if r == nil || r.err != nil {
		return nil, false
	}
	return r.kinds, true
}

// resource returns the resource of a Ref's kind. A kind that is not served is Absent.
func (s *Snapshot) resource(kind string) (schema.GroupResource, Presence) {
	if k, ok := kindNamed(kind); ok {
		return k.GroupResource(), Found
	}
	kinds, ok := s.customKinds()
	if !ok {
		return schema.GroupResource{}, Unknown
	}
	for i := range kinds {
		if strings.EqualFold(kinds[i].fullName(), kind) {
			return kinds[i].resource, Found
		}
	}
	return schema.GroupResource{}, Absent
}

// discover reads the kinds that are not built in. Groups that do not answer are left out.
func (c *ClusterReader) discover() ([]customKind, error) {
	lists, err := c.discovery.ServerPreferredResources()
	if err != nil && len(lists) == 0 {
		return nil, err
	}
	var out []customKind
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil || gv.Group == "" {
			continue
		}
		for i := range list.APIResources {
			r := &list.APIResources[i]
			gr := schema.GroupResource{Group: gv.Group, Resource: r.Name}
			if _, known := api.ByResource(gr); known || !slices.Contains(r.Verbs, "get") || !slices.Contains(r.Verbs, "list") || len(out) == maxKinds {
				continue
			}
			names := append([]string{strings.ToLower(r.SingularName)}, r.ShortNames...)
			out = append(out, customKind{resource: gr, kind: r.Kind, version: gv.Version, namespaced: r.Namespaced, names: names})
		}
	}
	slices.SortFunc(out, func(a, b customKind) int { return cmp.Compare(a.fullName(), b.fullName()) })
	return out, nil
}

// ErrNoKind means that no kind has this name.
var ErrNoKind = errors.New("use a name of `knarr kubectl api-resources`, such as pod, pvc or svc")

// Resolve finds an object by the name of a kind that is not built in: plural, singular, short name,
// or one of them with the group, such as widgets.example.com. If only a CustomResourceDefinition
// has the name, since it is not served, the definition is the object.
func (c *ClusterReader) Resolve(ctx context.Context, kind, namespace, name string) (Ref, error) {
	kind = strings.ToLower(kind)
	kinds, err := c.kinds()
	if err != nil {
		return Ref{}, err
	}
	var found []customKind
	for _, k := range kinds {
		if k.answersTo(kind) {
			found = append(found, k)
		}
	}
	switch len(found) {
	case 0:
		return c.unserved(ctx, kind)
	case 1:
		if !found[0].namespaced {
			namespace = ""
		}
		return Ref{Kind: found[0].fullName(), Namespace: namespace, Name: name}, nil
	}
	var full []string
	for i := range found {
		full = append(full, strings.ToLower(found[i].fullName()))
	}
	return Ref{}, fmt.Errorf("%s means several kinds: name one of %s", kind, names(full))
}

// unserved finds a definition that is not served, by the names of its kind.
func (c *ClusterReader) unserved(ctx context.Context, kind string) (Ref, error) {
	r := c.read(ctx, []need{{what: "objects", resource: resourceOf[*apiextensionsv1.CustomResourceDefinition]()}})[0]
	for _, o := range r.objects {
		d, ok := o.(*apiextensionsv1.CustomResourceDefinition)
		if !ok {
			continue
		}
		k := customKind{
			resource: schema.GroupResource{Group: d.Spec.Group, Resource: d.Spec.Names.Plural}, kind: d.Spec.Names.Kind,
			names: append([]string{d.Spec.Names.Singular}, d.Spec.Names.ShortNames...),
		}
		if k.answersTo(kind) {
			return refTo(d), nil
		}
	}
	return Ref{}, fmt.Errorf("the cluster serves no kind %q: %w", kind, ErrNoKind)
}
