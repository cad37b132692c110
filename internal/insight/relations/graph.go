package relations

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/knarr-project/knarr/internal/architecture"
)

// ID names a component: its namespace and its name. The namespace is empty for Outside.
type ID struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// Outside stands for clients and servers beyond the cluster.
var Outside = ID{Name: "outside"}

func (id ID) String() string {
	if id.Namespace == "" {
		return id.Name
	}
	return id.Namespace + "/" + id.Name
}

func compareID(a, b ID) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// Object names an object of the API, such as {Deployment shop web}.
type Object struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

func (o Object) String() string { return o.Kind + " " + o.Name }

func compareObject(a, b Object) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// Component is a part of the architecture.
type Component struct {
	ID     ID     `json:"id"`
	System string `json:"system"`
	// Systems are all that contain it, if it is declared.
	Systems []string `json:"systems,omitempty"`
	// Declared means that there is a Component of the ID.
	Declared bool `json:"declared,omitempty"`
	// Owner and Layer are those of the Component.
	Owner string `json:"owner,omitempty"`
	Layer string `json:"layer,omitempty"`
	// Workloads are the objects that make its pods.
	Workloads []Object `json:"workloads,omitempty"`
	// Services select its pods.
	Services []Offer `json:"services,omitempty"`
	// Data are its PersistentVolumeClaims, by name or, for a StatefulSet, by template.
	Data []string `json:"data,omitempty"`
	// Settings are the ConfigMaps and Secrets that its pods refer to.
	Settings []Object `json:"settings,omitempty"`
	// Replicas is the wanted number of pods. Ready counts those that are ready.
	Replicas int `json:"replicas"`
	Ready    int `json:"ready"`
	// Nodes has the number of its pods by node.
	Nodes map[string]int `json:"nodes,omitempty"`

	// Spec is the declaration, or what it could be for a component without one.
	Spec architecture.ComponentSpec `json:"-"`
}

// Offer is a Service in front of a component.
type Offer struct {
	Name  string   `json:"name"`
	Type  string   `json:"type"`
	Ports []string `json:"ports,omitempty"` // such as 80/TCP
}

// Source is where the knowledge of a relation comes from.
type Source string

const (
	// Declared by a Component.
	Declared Source = "declared"
	// Derived from the objects of the components.
	Derived Source = "derived"
	// Seen by a node as a connection.
	Seen Source = "seen"
	// Denied is a connection that a node has seen and not let through.
	Denied Source = "denied"
)

// Difference is a contradiction between sources.
type Difference string

const (
	// NotDeclared is a relation that is derived, but not declared.
	NotDeclared Difference = "not declared"
	// Undeclared is a connection that was seen, and that no declaration allows.
	Undeclared Difference = "seen, not declared"
	// NeverSeen is a declared relation without a connection, while nodes count.
	NeverSeen Difference = "declared, never seen"
	// WasDenied is a relation with connections that a policy has denied.
	WasDenied Difference = "denied"
	// Missing is a declared relation to a component that does not exist.
	Missing Difference = "declared, but the component is missing"
)

// Relation says that From depends on To.
type Relation struct {
	From ID `json:"from"`
	To   ID `json:"to"`
	// Through is the Service, or the host beyond the cluster, that the relation uses.
	Through string `json:"through,omitempty"`
	// Evidence names the fields and connections that tell of the relation, sorted.
	Evidence []string `json:"evidence"`
	// Sources are sorted.
	Sources []Source `json:"sources"`
	// Differences are sorted. They exist only if an end is declared.
	Differences []Difference `json:"differences,omitempty"`
	// Optional means that From works without To, as its Component declares.
	Optional bool `json:"optional,omitempty"`
	// Seen sums up the connections; nil if there are none.
	Seen *Sightings `json:"seen,omitempty"`
	// Addresses are some of those beyond the cluster that were connected to, and the host of a
	// Service of the type ExternalName, sorted.
	Addresses []string `json:"addresses,omitempty"`
}

// Sightings are connections that nodes have seen.
type Sightings struct {
	Allowed int64     `json:"allowed"`
	Denied  int64     `json:"denied,omitempty"`
	Last    time.Time `json:"last"`
}

// Has reports whether the relation is known from a source.
func (r *Relation) Has(s Source) bool { return slices.Contains(r.Sources, s) }

// Graph is the architecture of a cluster or of some namespaces.
type Graph struct {
	Components []Component `json:"components"`
	Relations  []Relation  `json:"relations"`
	// Declared means that a Component exists. Otherwise there are no differences.
	Declared bool `json:"declared"`
	// Counted means that nodes count connections.
	Counted bool `json:"counted"`
	// Unread lists the kinds that could not be read, with the reason. Relations may be missing.
	Unread []string `json:"unread,omitempty"`
	// Gone are the removed objects whose connections are left out, sorted.
	Gone []Object `json:"gone,omitempty"`

	// Systems are the declared ones.
	Systems []*architecture.System `json:"-"`
}

// Find returns the component with the ID, or nil.
func (g *Graph) Find(id ID) *Component {
	i, ok := slices.BinarySearchFunc(g.Components, id, func(c Component, id ID) int { return compareID(c.ID, id) })
	if !ok {
		return nil
	}
	return &g.Components[i]
}

// Within returns the part of the graph with the components that fn accepts, and their direct
// neighbours.
func (g *Graph) Within(fn func(*Component) bool) *Graph {
	chosen, shown := map[ID]bool{}, map[ID]bool{}
	for i := range g.Components {
		if c := &g.Components[i]; fn(c) {
			chosen[c.ID], shown[c.ID] = true, true
		}
	}
	out := &Graph{Declared: g.Declared, Counted: g.Counted, Unread: g.Unread, Systems: g.Systems}
	for _, r := range g.Relations {
		if chosen[r.From] || chosen[r.To] {
			out.Relations = append(out.Relations, r)
			shown[r.From], shown[r.To] = true, true
		}
	}
	for _, c := range g.Components {
		if shown[c.ID] {
			out.Components = append(out.Components, c)
		}
	}
	return out
}

// In reports whether the component belongs to a System, directly or nested.
func (c *Component) In(system string) bool {
	return c.System == system || slices.Contains(c.Systems, system)
}

// builder collects components and relations.
type builder struct {
	components map[ID]*Component
	relations  map[relationKey]*found
	model      *architecture.Model
	counted    bool
}

type relationKey struct {
	from, to ID
	through  string
}

// found is what is known of a relation.
type found struct {
	evidence    map[string]bool
	sources     map[Source]bool
	differences map[Difference]bool
	required    bool // by a requirement that is not optional
	seen        *Sightings
	addresses   []string
}

func newBuilder(o *Objects) *builder {
	return &builder{
		components: map[ID]*Component{}, relations: map[relationKey]*found{},
		model: architecture.NewModel(o.Components, o.Systems), counted: o.Counted,
	}
}

func (b *builder) component(id ID, system string) *Component {
	c := b.components[id]
	if c == nil {
		c = &Component{ID: id, System: system, Nodes: map[string]int{}}
		b.components[id] = c
	}
	return c
}

// relate records a relation, and returns what is known of it. A component does not depend on
// itself: then the result is recorded nowhere.
func (b *builder) relate(from, to ID, through string, source Source, evidence string) *found {
	key := relationKey{from, to, through}
	f := b.relations[key]
	if f == nil {
		f = &found{evidence: map[string]bool{}, sources: map[Source]bool{}, differences: map[Difference]bool{}}
		if from != to {
			b.relations[key] = f
		}
	}
	f.evidence[evidence], f.sources[source] = true, true
	return f
}

// add adds what another record of the same ends knows.
func (f *found) add(other *found) {
	maps.Copy(f.evidence, other.evidence)
	maps.Copy(f.sources, other.sources)
	maps.Copy(f.differences, other.differences)
	f.required = f.required || other.required
	f.addresses = architecture.MergeAddresses(f.addresses, other.addresses)
	if other.seen != nil {
		sum := *other.seen
		if f.seen != nil {
			sum.Allowed, sum.Denied = sum.Allowed+f.seen.Allowed, sum.Denied+f.seen.Denied
			if f.seen.Last.After(sum.Last) {
				sum.Last = f.seen.Last
			}
		}
		f.seen = &sum
	}
}

// join lets relations that name a Service or host take over what is known of their ends without
// one.
func (b *builder) join() {
	named := map[[2]ID][]relationKey{}
	for key := range b.relations {
		if key.through != "" {
			named[[2]ID{key.from, key.to}] = append(named[[2]ID{key.from, key.to}], key)
		}
	}
	for key, f := range b.relations {
		keys := named[[2]ID{key.from, key.to}]
		if key.through != "" || len(keys) == 0 {
			continue
		}
		for _, k := range keys {
			b.relations[k].add(f)
		}
		delete(b.relations, key)
	}
}

// graph returns what was collected, sorted.
func (b *builder) graph() *Graph {
	b.join()
	g := &Graph{Declared: len(b.model.Components()) > 0, Counted: b.counted}
	for _, name := range b.model.Systems() {
		g.Systems = append(g.Systems, b.model.System(name))
	}
	for _, c := range b.components {
		slices.SortFunc(c.Workloads, compareObject)
		slices.SortFunc(c.Settings, compareObject)
		c.Settings = slices.Compact(c.Settings)
		slices.SortFunc(c.Services, func(a, b Offer) int { return cmp.Compare(a.Name, b.Name) })
		slices.Sort(c.Data)
		c.Data = slices.Compact(c.Data)
		g.Components = append(g.Components, *c)
	}
	slices.SortFunc(g.Components, func(a, b Component) int { return compareID(a.ID, b.ID) })
	for key, f := range b.relations {
		b.compare(key, f)
		r := Relation{From: key.from, To: key.to, Through: key.through, Seen: f.seen, Addresses: f.addresses, Optional: f.sources[Declared] && !f.required}
		r.Evidence, r.Sources = slices.Sorted(maps.Keys(f.evidence)), slices.Sorted(maps.Keys(f.sources))
		r.Differences = slices.Sorted(maps.Keys(f.differences))
		g.Relations = append(g.Relations, r)
	}
	slices.SortFunc(g.Relations, func(a, b Relation) int {
		return cmp.Or(compareID(a.From, b.From), compareID(a.To, b.To), cmp.Compare(a.Through, b.Through))
	})
	return g
}
