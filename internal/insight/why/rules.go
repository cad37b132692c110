package why

import (
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/api"
)

// Rule is a pure function that finds what is wrong with an object of one resource.
type Rule struct {
	Name string
	// Resource is the resource of its subjects; empty for all.
	Resource schema.GroupResource
	Find     func(s *Snapshot, object runtime.Object) []Finding
}

// on makes a rule about objects of one type.
func on[T runtime.Object](name string, find func(*Snapshot, T) []Finding) Rule {
	return Rule{name, resourceOf[T](), func(s *Snapshot, o runtime.Object) []Finding {
		if t, ok := o.(T); ok {
			return find(s, t)
		}
		return nil
	}}
}

func rulesFor(gr schema.GroupResource) []Rule {
	var out []Rule
	for _, r := range allRules() {
		if r.Resource == gr || r.Resource.Empty() {
			out = append(out, r)
		}
	}
	return out
}

// kindNamed finds a built-in kind by its name, without regard to case.
func kindNamed(name string) (*api.Kind, bool) {
	k, ok := kindsByName()[strings.ToLower(name)]
	return k, ok
}

var kindsByName = sync.OnceValue(func() map[string]*api.Kind {
	out := map[string]*api.Kind{}
	kinds := api.Kinds()
	for i := range kinds {
		k := &kinds[i]
		if k.Virtual || k.Alias != (schema.GroupResource{}) {
			continue
		}
		for _, name := range append([]string{k.Resource, k.Singular, strings.ToLower(k.Kind.Kind), k.Resource + "." + k.Kind.Group}, k.ShortNames...) {
			if _, taken := out[name]; !taken {
				out[name] = k
			}
		}
	}
	return out
})

// ResolveKind finds a built-in kind by a name that kubectl takes: plural, singular, short name or
// resource.group.
func ResolveKind(name string) (*api.Kind, bool) { return kindNamed(name) }
