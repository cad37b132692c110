package architecture

import (
	"fmt"
	"slices"
	"strings"

	"github.com/knarr-project/knarr/internal/config"
)

// Fault is one contradiction between declarations.
type Fault struct {
	// Condition is the type of the condition that the fault makes False.
	Condition string
	Reason    string
	// Field is the path of the declaration, such as spec.requires[0].component; Value is its value.
	Field, Value string
	// Message says in one sentence what is wrong and what is allowed.
	Message string
	// To is the required component, if the fault is about a requirement.
	To ComponentReference
}

// maxNames is the number of allowed names that a message lists.
const maxNames = 12

// allowed lists names in a message, with the nearest ones to a misspelt name.
func allowed(name string, known []string) string {
	if len(known) == 0 {
		return "there is none"
	}
	text := strings.Join(known[:min(len(known), maxNames)], ", ")
	if len(known) > maxNames {
		text += fmt.Sprintf(" and %d more", len(known)-maxNames)
	}
	if len(name) <= 253 {
		if near := config.Nearest(name, known[:min(len(known), 2000)]); len(near) > 0 {
			text += fmt.Sprintf("; did you mean %q?", near[0])
		}
	}
	return text
}

// Faults returns what contradicts itself in the declaration of a component, in the order of its
// fields.
func (m *Model) Faults(ref ComponentReference) (faults []Fault) {
	c := m.components[ref]
	if c == nil {
		return nil
	}
	for i := range c.Spec.Requires {
		at := fmt.Sprintf("spec.requires[%d]", i)
		f, found := m.unmet(ref, i, at)
		if !found {
			if !c.Spec.Requires[i].Optional {
				faults = append(faults, f)
			}
			continue
		}
		if way := m.circle(ref, i); way != nil {
			names := make([]string, len(way))
			for i, on := range way {
				names[i] = on.String()
			}
			faults = append(faults, Fault{Condition: Acyclic, Reason: "Circle", Field: at + ".component", Value: way[1].Name, To: way[1],
				Message: "the requirements form a circle: " + strings.Join(names, " → ")})
		}
		faults = append(faults, m.layerFaults(ref, i, at)...)
		faults = append(faults, m.forbiddenFaults(ref, i, at)...)
	}
	return append(faults, m.unknownLayer(ref)...)
}

// unmet returns the fault of a requirement that names nothing.
func (m *Model) unmet(ref ComponentReference, i int, at string) (f Fault, found bool) {
	r := m.components[ref].Spec.Requires[i]
	to, _, found := m.Offers(ref, i)
	if found {
		return f, true
	}
	f = Fault{Condition: RequirementsMet, To: to}
	if c := m.components[to]; c != nil {
		var known []string
		for _, o := range c.Spec.Offers {
			known = append(known, o.Name)
		}
		f.Reason, f.Field, f.Value = "OfferUnknown", at+".port", r.Port
		f.Message = fmt.Sprintf("component %s offers no %q; its offers: %s", to, r.Port, allowed(r.Port, known))
		return f, false
	}
	var known []string
	for _, other := range m.order {
		if other.Namespace == to.Namespace {
			known = append(known, other.Name)
		}
	}
	f.Reason, f.Field, f.Value = "ComponentUnknown", at+".component", r.Component
	f.Message = fmt.Sprintf("component %s does not exist; components of namespace %s: %s", to, to.Namespace, allowed(to.Name, known))
	return f, false
}

// layerFaults returns the violations of the order of layers by one requirement.
func (m *Model) layerFaults(ref ComponentReference, i int, at string) (faults []Fault) {
	to := m.target(ref, i)
	from, target := m.components[ref], m.components[to]
	for _, name := range m.within[ref] {
		if !m.members[name][to] {
			continue
		}
		layers := m.systems[name].Spec.Layers
		high, low := slices.Index(layers, from.Spec.Layer), slices.Index(layers, target.Spec.Layer)
		if high < 0 || low < 0 || high <= low {
			continue
		}
		faults = append(faults, Fault{Condition: LayersRespected, Reason: "HigherLayer", Field: at + ".component", Value: to.Name, To: to,
			Message: fmt.Sprintf("component %s is in layer %s, above layer %s of %s: system %s allows requirements on its own layer and lower ones (%s)",
				to, target.Spec.Layer, from.Spec.Layer, ref, name, strings.Join(layers[high:], ", "))})
	}
	return faults
}

// unknownLayer returns the fault of a component whose Systems have layers, but not its own.
func (m *Model) unknownLayer(ref ComponentReference) []Fault {
	layer := m.components[ref].Spec.Layer
	if layer == "" {
		return nil
	}
	var known []string
	for _, name := range m.within[ref] {
		known = append(known, m.systems[name].Spec.Layers...)
	}
	if len(known) == 0 || slices.Contains(known, layer) {
		return nil
	}
	return []Fault{{Condition: LayersRespected, Reason: "LayerUnknown", Field: "spec.layer", Value: layer,
		Message: fmt.Sprintf("no system of component %s has the layer %q; their layers: %s", ref, layer, allowed(layer, known))}}
}

// forbiddenFaults returns the rules that forbid a requirement, and the boundaries that it crosses.
func (m *Model) forbiddenFaults(ref ComponentReference, i int, at string) (faults []Fault) {
	to := m.target(ref, i)
	for _, name := range m.names {
		s := m.systems[name]
		for _, f := range s.Spec.Forbidden {
			if !m.on(name, f.From, ref) || !m.on(name, f.To, to) {
				continue
			}
			message := fmt.Sprintf("system %s forbids that %s requires %s", name, f.From, f.To)
			if f.Reason != "" {
				message += ": " + f.Reason
			}
			faults = append(faults, Fault{Condition: DependenciesAllowed, Reason: "Forbidden", Field: at + ".component", Value: to.Name, To: to, Message: message})
		}
		if m.closed(name, ref, to) {
			faults = append(faults, Fault{Condition: DependenciesAllowed, Reason: "BoundaryCrossed", Field: at + ".component", Value: to.Name, To: to,
				Message: fmt.Sprintf("component %s is inside of system %s and no entrance of it; entrances: %s", to, name, allowed("", m.entrances(name)))})
		}
	}
	return faults
}

// on reports whether a component is on a side of a forbidden dependency of a System.
func (m *Model) on(system string, side Side, ref ComponentReference) bool {
	switch {
	case side.Component != "":
		return side.Component == ref.String()
	case side.Layer != "":
		return m.members[system][ref] && m.components[ref].Spec.Layer == side.Layer
	case side.System != "":
		return m.members[side.System][ref]
	}
	return false
}

func (s Side) String() string {
	switch {
	case s.Component != "":
		return "component " + s.Component
	case s.Layer != "":
		return "layer " + s.Layer
	}
	return "system " + s.System
}

// closed reports whether the boundary of a System lies between two components, without an entrance.
func (m *Model) closed(system string, from, to ComponentReference) bool {
	s := m.systems[system]
	if len(s.Spec.Entrances) == 0 || m.members[system][from] || !m.members[system][to] {
		return false
	}
	return !slices.Contains(s.Spec.Entrances, to) && len(m.components[to].Spec.Exposed) == 0
}

// entrances returns the components that others may require through the boundary of a System.
func (m *Model) entrances(system string) (names []string) {
	for _, ref := range m.order {
		if m.members[system][ref] && (slices.Contains(m.systems[system].Spec.Entrances, ref) || len(m.components[ref].Spec.Exposed) > 0) {
			names = append(names, ref.String())
		}
	}
	return names
}

// SystemFaults returns what contradicts itself in the declaration of a System: names of components,
// Systems and layers that do not exist, and Systems that contain themselves.
func (m *Model) SystemFaults(name string) (faults []Fault) {
	s := m.systems[name]
	if s == nil {
		return nil
	}
	add := func(reason, field, value, message string) {
		faults = append(faults, Fault{Condition: MembersFound, Reason: reason, Field: field, Value: value, Message: message})
	}
	component := func(field string, ref ComponentReference) {
		if m.components[ref] == nil {
			add("ComponentUnknown", field, ref.String(), fmt.Sprintf("component %s does not exist; components: %s", ref, allowed(ref.String(), m.componentNames(ref.Namespace))))
		}
	}
	system := func(field, value string) {
		if m.systems[value] == nil {
			add("SystemUnknown", field, value, fmt.Sprintf("system %s does not exist; systems: %s", value, allowed(value, m.names)))
		}
	}
	for i, ref := range s.Spec.Components {
		component(fmt.Sprintf("spec.components[%d]", i), ref)
	}
	for i, nested := range s.Spec.Systems {
		field := fmt.Sprintf("spec.systems[%d]", i)
		system(field, nested)
		if m.contains(nested, name, map[string]bool{}) {
			add("SystemInItself", field, nested, fmt.Sprintf("system %s contains system %s, which contains it", name, nested))
		}
	}
	for i, ref := range s.Spec.Entrances {
		field := fmt.Sprintf("spec.entrances[%d]", i)
		component(field, ref)
		if m.components[ref] != nil && !m.members[name][ref] {
			add("EntranceOutside", field, ref.String(), fmt.Sprintf("component %s does not belong to system %s, so it is no entrance of it", ref, name))
		}
	}
	for i, f := range s.Spec.Forbidden {
		for _, end := range []struct {
			field string
			side  Side
		}{{"from", f.From}, {"to", f.To}} {
			field := fmt.Sprintf("spec.forbidden[%d].%s", i, end.field)
			switch {
			case end.side.Component != "":
				namespace, component, _ := strings.Cut(end.side.Component, "/")
				if m.components[ComponentReference{namespace, component}] == nil {
					add("ComponentUnknown", field+".component", end.side.Component, fmt.Sprintf("component %s does not exist; components: %s", end.side.Component, allowed(end.side.Component, m.componentNames(namespace))))
				}
			case end.side.System != "":
				system(field+".system", end.side.System)
			case end.side.Layer != "" && !slices.Contains(s.Spec.Layers, end.side.Layer):
				add("LayerUnknown", field+".layer", end.side.Layer, fmt.Sprintf("system %s has no layer %q; its layers: %s", name, end.side.Layer, allowed(end.side.Layer, s.Spec.Layers)))
			}
		}
	}
	return faults
}

func (m *Model) componentNames(namespace string) (names []string) {
	for _, ref := range m.order {
		if ref.Namespace == namespace {
			names = append(names, ref.String())
		}
	}
	return names
}

// contains reports whether a System is, or contains, another one.
func (m *Model) contains(system, other string, seen map[string]bool) bool {
	if system == other {
		return true
	}
	s := m.systems[system]
	if s == nil || seen[system] {
		return false
	}
	seen[system] = true
	return slices.ContainsFunc(s.Spec.Systems, func(nested string) bool { return m.contains(nested, other, seen) })
}
