package relations

import (
	"cmp"
	"fmt"

	"github.com/knarr-project/knarr/internal/architecture"
)

// systemOf returns the smallest System that contains a declared component, or its namespace.
func (b *builder) systemOf(ref architecture.ComponentReference) string {
	best, size := ref.Namespace, 0
	for _, name := range b.model.SystemsOf(ref) {
		if n := len(b.model.Members(name)); size == 0 || n < size {
			best, size = name, n
		}
	}
	return best
}

// declared records what Components declare.
func (b *builder) declared() {
	for _, ref := range b.model.Components() {
		spec := &b.model.Component(ref).Spec
		id := ID(ref)
		c := b.component(id, b.systemOf(ref))
		c.Declared, c.Owner, c.Layer, c.Systems, c.Spec = true, spec.Owner, spec.Layer, b.model.SystemsOf(ref), *spec
		for _, d := range spec.Data {
			switch {
			case d.Claim != "":
				c.Data = append(c.Data, d.Claim)
			case d.ConfigMap != "":
				c.Settings = append(c.Settings, Object{"ConfigMap", ref.Namespace, d.ConfigMap})
			case d.Secret != "":
				c.Settings = append(c.Settings, Object{"Secret", ref.Namespace, d.Secret})
			}
		}
		where := "Component " + ref.String()
		for i, r := range spec.Requires {
			b.requires(id, ref, i, r.Optional, fmt.Sprintf("%s spec.requires[%d]", where, i))
		}
		for i, name := range spec.Exposed {
			b.component(Outside, "")
			f := b.relate(Outside, id, "", Declared, fmt.Sprintf("%s spec.exposed[%d] %s", where, i, name))
			f.required = true
		}
		for i, o := range spec.RequiresOutside {
			b.component(Outside, "")
			f := b.relate(id, Outside, cmp.Or(o.Host, o.CIDR), Declared, fmt.Sprintf("%s spec.requiresOutside[%d] %s", where, i, o.Name))
			f.required = true
		}
	}
}

// requires records a requirement of a component.
func (b *builder) requires(id ID, ref architecture.ComponentReference, i int, optional bool, evidence string) {
	to, offers, exists := b.model.Offers(ref, i)
	through := map[string]bool{}
	for _, o := range offers {
		if o.Service != "" {
			through["Service "+to.Namespace+"/"+o.Service] = true
		}
	}
	if len(through) == 0 {
		through[""] = true
	}
	for service := range through {
		f := b.relate(id, ID(to), service, Declared, evidence)
		f.required = f.required || !optional
		if !exists {
			f.differences[Missing] = true
		}
	}
	if b.components[ID(to)] == nil {
		b.component(ID(to), to.Namespace)
	}
}

// compare records the differences between the sources of a relation.
func (b *builder) compare(key relationKey, f *found) {
	if f.sources[Denied] {
		f.differences[WasDenied] = true
	}
	from, to := b.components[key.from], b.components[key.to]
	if (from == nil || !from.Declared) && (to == nil || !to.Declared) {
		return
	}
	switch {
	case !f.sources[Declared] && f.sources[Derived] && !f.differences[Undeclared]:
		f.differences[NotDeclared] = true
	case f.sources[Declared] && !f.sources[Seen] && !f.sources[Denied] && !f.differences[Missing] && b.counted:
		f.differences[NeverSeen] = true
	}
}
