package architecture

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"
)

// part returns a component of namespace ns that selects its own name, offers http at 8080, and
// requires others by NAME or NAMESPACE/NAME.
func part(name string, requires ...string) *Component {
	c := &Component{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	c.Spec.Selector.MatchLabels = map[string]string{"app": name}
	c.Spec.Offers = []Offer{{Name: "http", Port: intstr.FromInt32(8080)}}
	for _, r := range requires {
		namespace, name, ok := strings.Cut(r, "/")
		if !ok {
			namespace, name = "", r
		}
		c.Spec.Requires = append(c.Spec.Requires, Requirement{Namespace: namespace, Component: name})
	}
	return c
}

func (c *Component) in(namespace, layer string) *Component {
	c.Namespace, c.Spec.Layer = namespace, layer
	return c
}

func around(name string, change func(*SystemSpec)) *System {
	s := &System{ObjectMeta: metav1.ObjectMeta{Name: name}}
	change(&s.Spec)
	return s
}

// at names a component by NAME, in namespace ns, or by NAMESPACE/NAME.
func at(name string) ComponentReference {
	if namespace, name, ok := strings.Cut(name, "/"); ok {
		return ComponentReference{namespace, name}
	}
	return ComponentReference{"ns", name}
}

// faults returns the faults of a component as CONDITION FIELD.
func (m *Model) faults(name string) (out []string) {
	for _, f := range m.Faults(at(name)) {
		out = append(out, f.Condition+" "+f.Field)
	}
	return out
}

func TestCirclesAreFoundAndNamed(t *testing.T) {
	m := NewModel([]*Component{part("a", "b"), part("b", "c", "d"), part("c", "a"), part("d", "e"), part("e"), part("self", "self")}, nil)
	for name, want := range map[string]string{
		"a": "ns/a → ns/b → ns/c → ns/a", "b": "ns/b → ns/c → ns/a → ns/b", "c": "ns/c → ns/a → ns/b → ns/c", "d": "", "e": "", "self": "",
	} {
		faults := m.Faults(at(name))
		switch {
		case want == "" && len(faults) > 0:
			t.Errorf("%s: %v", name, faults)
		case want != "" && (len(faults) != 1 || !strings.HasSuffix(faults[0].Message, want)):
			t.Errorf("%s: %v, want %s", name, faults, want)
		}
	}
}

// A component is in a circle if and only if a walk over requirements leads back to it.
func TestCirclesAreThoseOfAWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "components")
		edges := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) [2]int {
			return [2]int{rapid.IntRange(0, n-1).Draw(t, "from"), rapid.IntRange(0, n-1).Draw(t, "to")}
		}), 0, 16).Draw(t, "requirements")
		var all []*Component
		for i := range n {
			c := part(fmt.Sprint("c", i))
			for _, e := range edges {
				if e[0] == i {
					c.Spec.Requires = append(c.Spec.Requires, Requirement{Component: fmt.Sprint("c", e[1])})
				}
			}
			all = append(all, c)
		}
		m := NewModel(all, nil)
		for i := range n {
			reached := map[int]bool{}
			var walk func(int)
			walk = func(at int) {
				for _, e := range edges {
					if e[0] == at && e[0] != e[1] && !reached[e[1]] {
						reached[e[1]] = true
						walk(e[1])
					}
				}
			}
			walk(i)
			found := slices.ContainsFunc(m.Faults(at(fmt.Sprint("c", i))), func(f Fault) bool { return f.Condition == Acyclic })
			if found != reached[i] {
				t.Fatalf("c%d: fault %t, walk %t; %v", i, found, reached[i], edges)
			}
		}
	})
}

func TestLayersBoundariesAndForbiddenDependencies(t *testing.T) {
	store, web := part("store", "web").in("ns", "back"), part("web", "store").in("ns", "front")
	open := part("open")
	open.Spec.Exposed = []string{"http"}
	other := part("other", "ns/store", "ns/web", "ns/open").in("elsewhere", "")
	components := []*Component{store, web, open, other, part("hidden", "store").in("elsewhere", "")}
	systems := []*System{
		around("shop", func(s *SystemSpec) {
			s.Namespaces, s.Layers, s.Entrances = []string{"ns"}, []string{"front", "back"}, []ComponentReference{at("web")}
		}),
		around("all", func(s *SystemSpec) {
			s.Systems = []string{"shop"}
			s.Components = []ComponentReference{{"elsewhere", "other"}}
			s.Forbidden = []ForbiddenDependency{{From: Side{Component: "elsewhere/other"}, To: Side{System: "shop"}, Reason: "it is slow"}}
		}),
	}
	m := NewModel(components, systems)
	if have := m.Members("all"); len(have) != 4 {
		t.Errorf("members of all: %v", have)
	}
	if have := m.faults("store"); !slices.Contains(have, "LayersRespected spec.requires[0].component") {
		t.Errorf("store: %v", have)
	}
	if have := m.faults("web"); slices.Contains(have, "LayersRespected spec.requires[0].component") {
		t.Errorf("web: %v", have)
	}
	// store is no entrance; web and open are. All three are forbidden.
	want := []string{"DependenciesAllowed spec.requires[0].component", "DependenciesAllowed spec.requires[0].component", "DependenciesAllowed spec.requires[1].component", "DependenciesAllowed spec.requires[2].component"}
	if have := m.faults("elsewhere/other"); !slices.Equal(have, want) {
		t.Errorf("other: %v", have)
	}
	if have := m.faults("elsewhere/hidden"); !slices.Equal(have, []string{"RequirementsMet spec.requires[0].component"}) {
		t.Errorf("hidden: %v", have)
	}
}

func TestSystemsNameWhatDoesNotExist(t *testing.T) {
	m := NewModel([]*Component{part("a"), part("b").in("elsewhere", "")}, []*System{
		around("one", func(s *SystemSpec) {
			s.Components, s.Systems, s.Layers = []ComponentReference{at("a"), at("aa")}, []string{"two", "tow"}, []string{"high"}
			s.Entrances = []ComponentReference{{"elsewhere", "b"}}
			s.Forbidden = []ForbiddenDependency{{From: Side{Layer: "hihg"}, To: Side{System: "none"}}}
		}),
		around("two", func(s *SystemSpec) { s.Systems = []string{"one"} }),
	})
	var have []string
	for _, f := range m.SystemFaults("one") {
		have = append(have, f.Reason+" "+f.Field)
	}
	want := []string{
		"ComponentUnknown spec.components[1]", "SystemInItself spec.systems[0]", "SystemUnknown spec.systems[1]", "EntranceOutside spec.entrances[0]",
		"LayerUnknown spec.forbidden[0].from.layer", "SystemUnknown spec.forbidden[0].to.system",
	}
	if !slices.Equal(have, want) {
		t.Errorf("have %q\nwant %q", have, want)
	}
}

func TestTheStrictestSystemCounts(t *testing.T) {
	m := NewModel([]*Component{part("a"), part("b")}, []*System{
		around("inner", func(s *SystemSpec) {
			s.Components, s.Network, s.Admission = []ComponentReference{at("a")}, NetworkEnforce, AdmissionNone
		}),
		around("outer", func(s *SystemSpec) {
			s.Namespaces, s.Network, s.Admission = []string{"ns"}, NetworkReport, AdmissionWarn
		}),
	})
	if m.Network(at("a")) != NetworkEnforce || m.Admission(at("a")) != AdmissionWarn || m.Network(at("b")) != NetworkReport || m.Network(at("c")) != NetworkNone {
		t.Errorf("%s %s %s %s", m.Network(at("a")), m.Admission(at("a")), m.Network(at("b")), m.Network(at("c")))
	}
}

func TestFaultsThatWereThereBeforeAreNotNew(t *testing.T) {
	before := NewModel([]*Component{part("a", "x")}, nil)
	if have := before.With(part("a", "x", "y")).NewFaults(at("a"), before); len(have) != 1 || have[0].Field != "spec.requires[1].component" {
		t.Errorf("%v", have)
	}
}
