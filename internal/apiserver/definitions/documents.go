package definitions

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/knarr-project/knarr/internal/api/discovery"
	"github.com/knarr-project/knarr/internal/api/openapi"
	"github.com/knarr-project/knarr/internal/apiserver/custom"
	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/cache"
)

// Documents adds custom kinds to discovery and OpenAPI. It reads the cached definitions on
// every request, so an established definition is in the documents at once.
type Documents struct {
	Kinds *Kinds

	mu       sync.Mutex
	revision uint64
	newest   int64 // revision among the definitions when revision was counted
	count    int
}

var (
	_ discovery.Provider = (*Documents)(nil)
	_ openapi.Provider   = (*Documents)(nil)
)

// Revision grows with every change of a definition. A new or changed definition has the newest
// resourceVersion; a deletion lowers their count.
func (d *Documents) Revision() uint64 {
	var newest int64
	count := 0
	known := d.each(func(e *cache.Entry) { newest, count = max(newest, e.Revision), count+1 })
	d.mu.Lock()
	defer d.mu.Unlock()
	if known && (newest != d.newest || count != d.count) {
		d.newest, d.count = newest, count
		d.revision++
	}
	return d.revision
}

// each visits all definitions. It returns false if they cannot be read; the documents then stay as
// they are.
func (d *Documents) each(fn func(*cache.Entry)) bool {
	reader, err := d.Kinds.definitions(d.Kinds.Ctx)
	if err != nil {
		return false
	}
	reader.Snapshot().Ascend("", "", func(e *cache.Entry) bool { fn(e); return true })
	return true
}

// established calls fn for the outline and the entry of every definition that is served.
func (d *Documents) established(fn func(crd *apiextensionsv1.CustomResourceDefinition, e *cache.Entry)) {
	d.each(func(e *cache.Entry) {
		crd, err := registry.DefinitionOutline(e)
		if err == nil && custom.Established(crd) {
			fn(crd, e)
		}
	})
}

// GroupVersions implements discovery.Provider.
func (d *Documents) GroupVersions() []discovery.GroupVersion {
	var all []*apiextensionsv1.CustomResourceDefinition
	d.established(func(crd *apiextensionsv1.CustomResourceDefinition, _ *cache.Entry) { all = append(all, crd) })
	return slices.DeleteFunc(custom.Discovery(all), func(gv discovery.GroupVersion) bool { return d.isBuiltIn(gv.GroupVersion) })
}

// isBuiltIn reports whether the group version is built in; custom kinds are not served in it.
func (d *Documents) isBuiltIn(gv schema.GroupVersion) bool {
	return d.Kinds.Engine.Kinds.HasBuiltInVersion(gv)
}

// Hashes implements openapi.Provider: a document changes with its definitions.
func (d *Documents) Hashes() map[string]openapi.Hash {
	parts := map[string][]string{}
	d.established(func(crd *apiextensionsv1.CustomResourceDefinition, _ *cache.Entry) {
		for i := range crd.Spec.Versions {
			if v := &crd.Spec.Versions[i]; v.Served && !d.isBuiltIn(schema.GroupVersion{Group: crd.Spec.Group, Version: v.Name}) {
				path := "apis/" + crd.Spec.Group + "/" + v.Name
				parts[path] = append(parts[path], fmt.Sprintf("%s %s %d", crd.Name, crd.UID, crd.Generation))
			}
		}
	})
	hashes := make(map[string]openapi.Hash, len(parts))
	for path, list := range parts {
		sum := sha256.Sum256([]byte(path + "\n" + strings.Join(list, "\n")))
		hashes[path] = openapi.Hash{Text: strings.ToUpper(hex.EncodeToString(sum[:])), Whole: true}
	}
	return hashes
}

// versions describes the served kinds of one group version, or of all if only is empty.
func (d *Documents) versions(only schema.GroupVersion) map[schema.GroupVersion][]openapi.CustomKind {
	all := map[schema.GroupVersion][]openapi.CustomKind{}
	d.established(func(crd *apiextensionsv1.CustomResourceDefinition, e *cache.Entry) {
		if !only.Empty() && crd.Spec.Group != only.Group {
			return
		}
		for i := range crd.Spec.Versions {
			gv := schema.GroupVersion{Group: crd.Spec.Group, Version: crd.Spec.Versions[i].Name}
			if !crd.Spec.Versions[i].Served || !only.Empty() && gv != only || d.isBuiltIn(gv) {
				continue
			}
			// A separate Definition, so that its schemas are not kept.
			def := custom.NewDefinition(crd, registry.ReadDefinition(e), nil, nil)
			if v, ok := def.Version(gv.Version); ok {
				all[gv] = append(all[gv], v.OpenAPI())
			}
		}
	})
	return all
}

// Document implements openapi.Provider.
func (d *Documents) Document(path string) (*spec3.OpenAPI, error) {
	gv, err := schema.ParseGroupVersion(strings.TrimPrefix(path, "apis/"))
	if err != nil {
		return nil, fs.ErrNotExist
	}
	kinds, ok := d.versions(gv)[gv]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return openapi.CustomDocument(gv, kinds)
}

// Extend implements openapi.Provider.
func (d *Documents) Extend(doc *spec.Swagger) error {
	all := d.versions(schema.GroupVersion{})
	order := slices.SortedFunc(maps.Keys(all), func(a, b schema.GroupVersion) int { return strings.Compare(a.String(), b.String()) })
	for _, gv := range order {
		if err := openapi.ExtendCustom(doc, gv, all[gv]); err != nil {
			return err
		}
	}
	return nil
}
