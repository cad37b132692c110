package relations

import (
	"cmp"
	"slices"
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
}

// Offer is a Service in front of a component.
type Offer struct {
	Name  string   `json:"name"`
	Type  string   `json:"type"`
	Ports []string `json:"ports,omitempty"` // such as 80/TCP
}

// Relation says that From depends on To.
type Relation struct {
	From ID `json:"from"`
	To   ID `json:"to"`
	// Through is the Service, or the host beyond the cluster, that the relation uses.
	Through string `json:"through,omitempty"`
	// Evidence names the fields that the relation was derived from, sorted.
	Evidence []string `json:"evidence"`
}

// Graph is the architecture of a cluster or of some namespaces.
type Graph struct {
	Components []Component `json:"components"`
	Relations  []Relation  `json:"relations"`
	// Unread lists the kinds that could not be read, with the reason. Relations may be missing.
	Unread []string `json:"unread,omitempty"`
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
	out := &Graph{Unread: g.Unread}
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

// builder collects components and relations.
type builder struct {
	components map[ID]*Component
	relations  map[relationKey]map[string]bool // the evidence
}

type relationKey struct {
	from, to ID
	through  string
}

func (b *builder) component(id ID, system string) *Component {
	c := b.components[id]
	if c == nil {
		c = &Component{ID: id, System: system, Nodes: map[string]int{}}
		b.components[id] = c
	}
	return c
}

// relate records a relation. A component does not depend on itself.
func (b *builder) relate(from, to ID, through, evidence string) {
	if from == to {
		return
	}
	key := relationKey{from, to, through}
	if b.relations[key] == nil {
		b.relations[key] = map[string]bool{}
	}
	b.relations[key][evidence] = true
}

// graph returns what was collected, sorted.
func (b *builder) graph() *Graph {
	g := &Graph{}
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
	for key, evidence := range b.relations {
		r := Relation{From: key.from, To: key.to, Through: key.through}
		for e := range evidence {
			r.Evidence = append(r.Evidence, e)
		}
		slices.Sort(r.Evidence)
		g.Relations = append(g.Relations, r)
	}
	slices.SortFunc(g.Relations, func(a, b Relation) int {
		return cmp.Or(compareID(a.From, b.From), compareID(a.To, b.To), cmp.Compare(a.Through, b.Through))
	})
	return g
}
