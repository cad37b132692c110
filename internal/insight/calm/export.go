package calm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/knarr-project/knarr/internal/architecture"
	"github.com/knarr-project/knarr/internal/insight/relations"
)

// declaration is the part of a Component or System that CALM has no place for.
type declaration struct {
	Kind      string                      `json:"kind"`
	Namespace string                      `json:"namespace,omitempty"`
	Name      string                      `json:"name"`
	Component *architecture.ComponentSpec `json:"component,omitempty"`
	System    *architecture.SystemSpec    `json:"system,omitempty"`
	Declared  bool                        `json:"declared,omitempty"`
	Workloads []string                    `json:"workloads,omitempty"`
}

// outsideID is the node of clients beyond the cluster; servers there have a node each.
const outsideID = "outside"

// Export translates a graph.
func Export(g *relations.Graph) (*Document, error) {
	e := &exporter{g: g, d: &Document{Schema: Schema, Nodes: []Node{}, Relationships: []Relationship{}}}
	e.systems()
	for i := range g.Components {
		if c := &g.Components[i]; c.ID != relations.Outside {
			e.component(c)
		}
	}
	for i := range g.Relations {
		e.relation(i, &g.Relations[i])
	}
	return e.d, e.err
}

type exporter struct {
	g   *relations.Graph
	d   *Document
	err error
	// outside are the nodes beyond the cluster that exist.
	outside map[string]bool
}

func (e *exporter) metadata(v any) json.RawMessage {
	raw, err := json.Marshal(v)
	e.err = cmp.Or(e.err, err)
	return raw
}

func componentID(id relations.ID) string { return id.Namespace + "." + id.Name }

func systemID(name string) string { return "system." + name }

// systems adds a node for each System, and for each namespace or label that stands for one.
func (e *exporter) systems() {
	parts := map[string][]string{}
	for i := range e.g.Components {
		if c := &e.g.Components[i]; c.ID != relations.Outside {
			parts[c.System] = append(parts[c.System], componentID(c.ID))
		}
	}
	declared := map[string]*architecture.System{}
	for _, s := range e.g.Systems {
		if parts[s.Name] != nil || len(s.Spec.Systems) > 0 {
			declared[s.Name] = s
		}
	}
	names := slices.Sorted(maps.Keys(parts))
	for name := range declared {
		if parts[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		node := Node{UniqueID: systemID(name), NodeType: "system", Name: name, Description: "The components of " + name + "."}
		about := declaration{Kind: "System", Name: name}
		nodes := parts[name]
		if s := declared[name]; s != nil {
			about.Declared, about.System = true, &s.Spec
			if s.Spec.Network == architecture.NetworkEnforce {
				node.Controls = map[string]Control{"network": {
					Description:  "Connections are limited to the declared ones.",
					Requirements: []Requirement{{RequirementURL: networkControl, Config: map[string]string{"network": string(s.Spec.Network)}}},
				}}
			}
			for _, nested := range s.Spec.Systems {
				if parts[nested] != nil || declared[nested] != nil {
					nodes = append(nodes, systemID(nested))
				}
			}
		}
		node.Metadata = e.metadata(nodeMetadata{&about})
		e.d.Nodes = append(e.d.Nodes, node)
		if len(nodes) > 0 {
			e.d.Relationships = append(e.d.Relationships, Relationship{
				UniqueID: "parts-of." + name, Description: name + " has these parts.",
				Type: RelationshipType{ComposedOf: &Contains{Container: systemID(name), Nodes: nodes}},
			})
		}
	}
}

func (e *exporter) component(c *relations.Component) {
	node := Node{UniqueID: componentID(c.ID), NodeType: "service", Name: c.ID.Name, Description: fmt.Sprintf("The component %s of namespace %s.", c.ID.Name, c.ID.Namespace)}
	if len(c.Data) > 0 {
		node.NodeType = "database"
	}
	about := declaration{Kind: "Component", Namespace: c.ID.Namespace, Name: c.ID.Name, Declared: c.Declared}
	spec := c.Spec
	about.Component = &spec
	for _, w := range c.Workloads {
		about.Workloads = append(about.Workloads, w.String())
	}
	for _, o := range spec.Offers {
		i := Interface{UniqueID: interfaceID(c.ID, o.Name), Name: o.Name, Host: cmp.Or(o.Service, c.ID.Name) + "." + c.ID.Namespace, Protocol: cmp.Or(o.Protocol, "TCP")}
		if o.Port.Type == intstr.Int {
			i.Port = json.RawMessage(strconv.Itoa(o.Port.IntValue()))
		} else {
			i.Port = e.metadata(o.Port.StrVal)
		}
		node.Interfaces = append(node.Interfaces, i)
	}
	node.Metadata = e.metadata(nodeMetadata{&about})
	e.d.Nodes = append(e.d.Nodes, node)
}

func interfaceID(id relations.ID, offer string) string { return componentID(id) + ":" + offer }

// external returns the node of a party beyond the cluster, and adds it at first.
func (e *exporter) external(id, kind, name, description string) string {
	if !e.outside[id] {
		if e.outside == nil {
			e.outside = map[string]bool{}
		}
		e.outside[id] = true
		e.d.Nodes = append(e.d.Nodes, Node{UniqueID: id, NodeType: kind, Name: name, Description: description})
	}
	return id
}

func (e *exporter) relation(i int, r *relations.Relation) {
	about := relationMetadata{Optional: r.Optional, Evidence: r.Evidence}
	for _, s := range r.Sources {
		about.Sources = append(about.Sources, string(s))
	}
	for _, d := range r.Differences {
		about.Differences = append(about.Differences, string(d))
	}
	out := Relationship{UniqueID: fmt.Sprintf("relation-%d", i+1), Description: fmt.Sprintf("%s depends on %s.", r.From, r.To), Metadata: e.metadata(about)}
	switch {
	case r.From == relations.Outside:
		actor := e.external(outsideID, "actor", "outside", "Clients beyond the cluster.")
		out.Type.Interacts = &Interacts{Actor: actor, Nodes: []string{componentID(r.To)}}
	case r.To == relations.Outside:
		name := cmp.Or(r.Through, "outside")
		server := e.external("outside."+name, "ecosystem", name, "Servers beyond the cluster.")
		out.Type.Connects = &Connects{Source: NodeInterface{Node: componentID(r.From)}, Destination: NodeInterface{Node: server}}
	default:
		out.Type.Connects = &Connects{Source: NodeInterface{Node: componentID(r.From)}, Destination: NodeInterface{Node: componentID(r.To), Interfaces: e.interfaces(r)}}
	}
	e.d.Relationships = append(e.d.Relationships, out)
}

// interfaces returns the interfaces of a relation's destination that a requirement names, or that
// the Service of the relation leads to.
func (e *exporter) interfaces(r *relations.Relation) (all []string) {
	from, to := e.g.Find(r.From), e.g.Find(r.To)
	if from == nil || to == nil {
		return nil
	}
	for _, required := range from.Spec.Requires {
		if required.Component == r.To.Name && cmp.Or(required.Namespace, r.From.Namespace) == r.To.Namespace && required.Port != "" {
			all = append(all, interfaceID(r.To, required.Port))
		}
	}
	return all
}
