package architecture

import (
	"cmp"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Model is the declared architecture of a cluster. It is immutable, and safe for concurrent use.
type Model struct {
	components map[ComponentReference]*Component
	order      []ComponentReference // sorted
	selectors  map[ComponentReference]labels.Selector
	systems    map[string]*System
	names      []string // of systems, sorted
	// members are the components of each System, nested ones too.
	members map[string]map[ComponentReference]bool
	within  map[ComponentReference][]string // the Systems of each component, sorted
	// circles has, for a component that is part of a circle, the number of the circle.
	circles   map[ComponentReference]int
	requirers map[ComponentReference][]ComponentReference
}

// NewModel returns the architecture that the objects declare.
func NewModel(components []*Component, systems []*System) *Model {
	m := &Model{
		components: map[ComponentReference]*Component{}, selectors: map[ComponentReference]labels.Selector{},
		systems: map[string]*System{}, members: map[string]map[ComponentReference]bool{},
		within: map[ComponentReference][]string{}, requirers: map[ComponentReference][]ComponentReference{},
	}
	for _, c := range components {
		m.components[c.Reference()] = c
		selector, err := metav1.LabelSelectorAsSelector(&c.Spec.Selector)
		if err != nil || selector.Empty() {
			selector = labels.Nothing()
		}
		m.selectors[c.Reference()] = selector
	}
	m.order = slices.SortedFunc(maps.Keys(m.components), compareReferences)
	for _, s := range systems {
		m.systems[s.Name] = s
	}
	m.names = slices.Sorted(maps.Keys(m.systems))
	for _, name := range m.names {
		m.members[name] = map[ComponentReference]bool{}
		m.collect(name, m.members[name], map[string]bool{})
		for ref := range m.members[name] {
			m.within[ref] = append(m.within[ref], name)
		}
	}
	for _, from := range m.order {
		for i := range m.components[from].Spec.Requires {
			if to := m.target(from, i); to != from && !slices.Contains(m.requirers[to], from) {
				m.requirers[to] = append(m.requirers[to], from)
			}
		}
	}
	m.circles = m.findCircles()
	return m
}

// Reference returns the component's namespace and name.
func (c *Component) Reference() ComponentReference {
	return ComponentReference{Namespace: c.Namespace, Name: c.Name}
}

func compareReferences(a, b ComponentReference) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// collect adds the components of a System and of the Systems nested in it.
func (m *Model) collect(name string, into map[ComponentReference]bool, seen map[string]bool) {
	s := m.systems[name]
	if s == nil || seen[name] {
		return
	}
	seen[name] = true
	for _, ref := range s.Spec.Components {
		if m.components[ref] != nil {
			into[ref] = true
		}
	}
	if len(s.Spec.Namespaces) > 0 || s.Spec.ComponentSelector != nil {
		selector := labels.Everything()
		if s.Spec.ComponentSelector != nil {
			var err error
			if selector, err = metav1.LabelSelectorAsSelector(s.Spec.ComponentSelector); err != nil {
				selector = labels.Nothing()
			}
		}
		for ref, c := range m.components {
			if (len(s.Spec.Namespaces) == 0 || slices.Contains(s.Spec.Namespaces, ref.Namespace)) && selector.Matches(labels.Set(c.Labels)) {
				into[ref] = true
			}
		}
	}
	for _, nested := range s.Spec.Systems {
		m.collect(nested, into, seen)
	}
}

// Component returns a component, or nil.
func (m *Model) Component(ref ComponentReference) *Component { return m.components[ref] }

// System returns a System, or nil.
func (m *Model) System(name string) *System { return m.systems[name] }

// Components returns the names of all components, sorted.
func (m *Model) Components() []ComponentReference { return m.order }

// Systems returns the names of all Systems, sorted.
func (m *Model) Systems() []string { return m.names }

// Members returns the components of a System and of the Systems nested in it, sorted.
func (m *Model) Members(system string) []ComponentReference {
	return slices.SortedFunc(maps.Keys(m.members[system]), compareReferences)
}

// SystemsOf returns the Systems that a component belongs to, sorted.
func (m *Model) SystemsOf(ref ComponentReference) []string { return m.within[ref] }

// RequirersOf returns the components that require a component, sorted.
func (m *Model) RequirersOf(ref ComponentReference) []ComponentReference { return m.requirers[ref] }

// Selects reports whether a component selects pods with these labels in its namespace.
func (m *Model) Selects(ref ComponentReference, set map[string]string) bool {
	selector := m.selectors[ref]
	return selector != nil && selector.Matches(labels.Set(set))
}

// Selector returns the selector of a component's pods. It selects nothing if there is no component.
func (m *Model) Selector(ref ComponentReference) labels.Selector {
	if s := m.selectors[ref]; s != nil {
		return s
	}
	return labels.Nothing()
}

// Of returns the components that select pods with these labels in a namespace, sorted.
func (m *Model) Of(namespace string, set map[string]string) (out []ComponentReference) {
	at, _ := slices.BinarySearchFunc(m.order, ComponentReference{Namespace: namespace}, compareReferences)
	for _, ref := range m.order[at:] {
		if ref.Namespace != namespace {
			break
		}
		if m.Selects(ref, set) {
			out = append(out, ref)
		}
	}
	return out
}

// target returns the component that a requirement of another one names.
func (m *Model) target(from ComponentReference, requirement int) ComponentReference {
	r := m.components[from].Spec.Requires[requirement]
	return ComponentReference{Namespace: cmp.Or(r.Namespace, from.Namespace), Name: r.Component}
}

// Offers returns the offers of the required component that a requirement allows. Found is false if
// the component, or the named offer, does not exist.
func (m *Model) Offers(from ComponentReference, requirement int) (to ComponentReference, offers []Offer, found bool) {
	to = m.target(from, requirement)
	c := m.components[to]
	if c == nil {
		return to, nil, false
	}
	port := m.components[from].Spec.Requires[requirement].Port
	if port == "" {
		return to, c.Spec.Offers, true
	}
	for _, o := range c.Spec.Offers {
		if o.Name == port {
			return to, []Offer{o}, true
		}
	}
	return to, nil, false
}

// Network returns the strictest mode of the component's Systems.
func (m *Model) Network(ref ComponentReference) NetworkMode {
	order := []NetworkMode{NetworkNone, NetworkReport, NetworkEnforce}
	return order[m.strictest(ref, func(s *System) int { return slices.Index(order, s.Spec.Network) })]
}

// Admission returns the strictest mode of the component's Systems.
func (m *Model) Admission(ref ComponentReference) AdmissionMode {
	order := []AdmissionMode{AdmissionNone, AdmissionWarn, AdmissionDeny}
	return order[m.strictest(ref, func(s *System) int { return slices.Index(order, s.Spec.Admission) })]
}

func (m *Model) strictest(ref ComponentReference, of func(*System) int) int {
	most := 0
	for _, name := range m.within[ref] {
		most = max(most, of(m.systems[name]))
	}
	return most
}

// findCircles numbers the circles of requirements: the strongly connected components with more than
// one member. A component that requires itself is no circle, since its pods may talk to each other.
func (m *Model) findCircles() map[ComponentReference]int {
	t := &tarjan{m: m, index: map[ComponentReference]int{}, low: map[ComponentReference]int{}, waiting: map[ComponentReference]bool{}, circles: map[ComponentReference]int{}}
	for _, ref := range m.order {
		if t.index[ref] == 0 {
			t.visit(ref)
		}
	}
	return t.circles
}

// tarjan is the state of Tarjan's algorithm. Its depth is that of the longest requirement chain.
type tarjan struct {
	m       *Model
	index   map[ComponentReference]int
	low     map[ComponentReference]int
	stack   []ComponentReference
	waiting map[ComponentReference]bool // on the stack
	circles map[ComponentReference]int
	found   int
}

func (t *tarjan) visit(ref ComponentReference) {
	t.index[ref] = len(t.index) + 1
	t.low[ref] = t.index[ref]
	t.stack = append(t.stack, ref)
	t.waiting[ref] = true
	for i := range t.m.components[ref].Spec.Requires {
		to := t.m.target(ref, i)
		if t.m.components[to] == nil {
			continue
		}
		if t.index[to] == 0 {
			t.visit(to)
			t.low[ref] = min(t.low[ref], t.low[to])
		} else if t.waiting[to] {
			t.low[ref] = min(t.low[ref], t.index[to])
		}
	}
	if t.low[ref] != t.index[ref] {
		return
	}
	at := slices.Index(t.stack, ref)
	if circle := t.stack[at:]; len(circle) > 1 {
		t.found++
		for _, member := range circle {
			t.circles[member] = t.found
		}
	}
	for _, member := range t.stack[at:] {
		t.waiting[member] = false
	}
	t.stack = t.stack[:at]
}

// circle returns a shortest way from a component over its requirement back to itself, or nil.
func (m *Model) circle(from ComponentReference, requirement int) []ComponentReference {
	start := m.target(from, requirement)
	if start == from || m.circles[from] == 0 || m.circles[from] != m.circles[start] {
		return nil
	}
	before := map[ComponentReference]ComponentReference{start: from}
	for queue := []ComponentReference{start}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		for i := range m.components[at].Spec.Requires {
			to := m.target(at, i)
			if to == from {
				way := []ComponentReference{from, at}
				for at != start {
					at = before[at]
					way = append(way, at)
				}
				way = append(way, from)
				slices.Reverse(way)
				return way
			}
			if _, seen := before[to]; !seen && m.circles[to] == m.circles[from] {
				before[to] = at
				queue = append(queue, to)
			}
		}
	}
	return nil
}
