package architecture

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// With returns the Model after a write of a component.
func (m *Model) With(c *Component) *Model {
	return NewModel(append(m.without(c.Reference()), c), slices.Collect(maps.Values(m.systems)))
}

// Without returns the Model after the deletion of a component.
func (m *Model) Without(ref ComponentReference) *Model {
	return NewModel(m.without(ref), slices.Collect(maps.Values(m.systems)))
}

func (m *Model) without(ref ComponentReference) (rest []*Component) {
	for _, c := range m.components {
		if c.Reference() != ref {
			rest = append(rest, c)
		}
	}
	return rest
}

// WithSystem returns the Model after a write of a System.
func (m *Model) WithSystem(s *System) *Model {
	systems := maps.Clone(m.systems)
	systems[s.Name] = s
	return NewModel(slices.Collect(maps.Values(m.components)), slices.Collect(maps.Values(systems)))
}

// NewFaults returns the faults of a component that an earlier Model does not have.
func (m *Model) NewFaults(ref ComponentReference, before *Model) []Fault {
	had := before.Faults(ref)
	return slices.DeleteFunc(m.Faults(ref), func(f Fault) bool { return slices.Contains(had, f) })
}

// Behind returns the components whose pods a Service leads to, as far as the labels in selectors
// tell, sorted. An offer that names the Service counts too.
func (m *Model) Behind(s *corev1.Service) (out []ComponentReference) {
	at, _ := slices.BinarySearchFunc(m.order, ComponentReference{Namespace: s.Namespace}, compareReferences)
	for _, ref := range m.order[at:] {
		if ref.Namespace != s.Namespace {
			break
		}
		c := m.components[ref]
		named := slices.ContainsFunc(c.Spec.Offers, func(o Offer) bool { return o.Service == s.Name })
		if named || len(s.Spec.Selector) > 0 && (m.Selects(ref, s.Spec.Selector) || isWithin(s.Spec.Selector, &c.Spec.Selector)) {
			out = append(out, ref)
		}
	}
	return out
}

// isWithin reports whether all pods that a component selects have a Service's labels.
func isWithin(service map[string]string, component *metav1.LabelSelector) bool {
	return labels.SelectorFromSet(service).Matches(labels.Set(component.MatchLabels))
}

// Requires reports whether a component declares that it requires another one.
func (m *Model) Requires(from, to ComponentReference) bool {
	return from == to || slices.Contains(m.requirers[to], from)
}
