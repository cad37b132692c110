package calm

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/knarr-project/knarr/internal/architecture"
)

// controls takes over the control that an export makes, and notes others.
func (i *importer) controls(p *part) {
	for name, c := range p.node.Controls {
		known := false
		for _, r := range c.Requirements {
			if p.system != nil && r.RequirementURL == networkControl && r.Config["network"] == string(architecture.NetworkEnforce) {
				p.system.Spec.Network, known = architecture.NetworkEnforce, true
			}
		}
		if !known {
			i.note("%s.controls.%s: the control is left out: nothing in the cluster checks it", p.at, name)
		}
	}
}

// relationships adds requirements and members.
func (i *importer) relationships() error {
	for n := range i.d.Relationships {
		r := &i.d.Relationships[n]
		at := fmt.Sprintf("relationships[%d]", n)
		switch {
		case r.Type.ComposedOf != nil:
			i.contain(at, r.Type.ComposedOf)
		case r.Type.DeployedIn != nil:
			i.contain(at, r.Type.DeployedIn)
		case r.Type.Interacts != nil:
			for _, id := range r.Type.Interacts.Nodes {
				i.expose(at, i.nodes[r.Type.Interacts.Actor], i.nodes[id], nil)
			}
		case r.Type.Connects != nil:
			i.connect(at, r)
		}
	}
	return nil
}

// contain adds parts to a System.
func (i *importer) contain(at string, c *Contains) {
	s := i.nodes[c.Container].system
	if s == nil {
		i.note("%s: the parts of %q are left out: it is no system", at, c.Container)
		return
	}
	for _, id := range c.Nodes {
		switch p := i.nodes[id]; {
		case p.component != nil:
			ref := p.component.Reference()
			covered := slices.Contains(s.Spec.Namespaces, ref.Namespace) && s.Spec.ComponentSelector == nil
			if !covered && !slices.Contains(s.Spec.Components, ref) {
				s.Spec.Components = append(s.Spec.Components, ref)
			}
		case p.system != nil && p.system != s:
			if !slices.Contains(s.Spec.Systems, p.system.Name) {
				s.Spec.Systems = append(s.Spec.Systems, p.system.Name)
			}
		default:
			i.note("%s: %q is no part of the system %s: it is beyond the cluster, or has no pods", at, id, s.Name)
		}
	}
}

// expose lets clients beyond the cluster use a component.
func (i *importer) expose(at string, actor, p *part, interfaces []string) {
	if actor.component != nil { // an actor inside the cluster
		i.require(at, actor, p, interfaces, false)
		return
	}
	if p.component == nil {
		i.note("%s: the relationship between %q and %q is left out: neither has pods", at, actor.node.UniqueID, p.node.UniqueID)
		return
	}
	spec := &p.component.Spec
	names := i.offerNames(at, p, interfaces)
	if len(interfaces) == 0 {
		for _, o := range spec.Offers {
			names = append(names, o.Name)
		}
		if p.about.Component != nil && len(p.about.Component.Exposed) > 0 {
			names = slices.DeleteFunc(names, func(name string) bool { return !slices.Contains(p.about.Component.Exposed, name) })
		}
	}
	if len(names) == 0 {
		i.note("%s: %q is not exposed: it has no interface with a port", at, p.node.UniqueID)
	}
	for _, name := range names {
		if !slices.Contains(spec.Exposed, name) {
			spec.Exposed = append(spec.Exposed, name)
		}
	}
}

// offerNames returns the offers of the interfaces.
func (i *importer) offerNames(at string, p *part, interfaces []string) (names []string) {
	for _, id := range interfaces {
		if name := p.offers[id]; name != "" {
			names = append(names, name)
		} else {
			i.note("%s: %q has no interface %q with a port", at, p.node.UniqueID, id)
		}
	}
	return names
}

func (i *importer) connect(at string, r *Relationship) {
	source, destination := i.nodes[r.Type.Connects.Source.Node], i.nodes[r.Type.Connects.Destination.Node]
	var about relationMetadata
	_ = json.Unmarshal(r.Metadata, &about) // a list, or of another program
	if len(about.Sources) > 0 && !slices.Contains(about.Sources, "declared") && !slices.Contains(about.Sources, "derived") {
		i.note("%s: the connection from %q to %q was only seen, and is not declared", at, source.node.UniqueID, destination.node.UniqueID)
		return
	}
	switch {
	case source.component == nil:
		i.expose(at, source, destination, r.Type.Connects.Destination.Interfaces)
	case destination.component != nil:
		i.require(at, source, destination, r.Type.Connects.Destination.Interfaces, about.Optional)
	case destination.system != nil:
		i.note("%s: the connection from %q to the system %q is left out: name one of its components", at, source.node.UniqueID, destination.node.UniqueID)
	default:
		i.requireOutside(at, source, destination)
	}
}

// require adds a requirement for each interface, or one for all.
func (i *importer) require(at string, from, to *part, interfaces []string, optional bool) {
	if to.component == nil || from == to {
		i.note("%s: the relationship between %q and %q is left out", at, from.node.UniqueID, to.node.UniqueID)
		return
	}
	ports := i.offerNames(at, to, interfaces)
	if len(ports) == 0 {
		ports = []string{""}
	}
	for _, port := range ports {
		r := architecture.Requirement{Component: to.component.Name, Port: port, Optional: optional}
		if to.component.Namespace != from.component.Namespace {
			r.Namespace = to.component.Namespace
		}
		if !slices.Contains(from.component.Spec.Requires, r) {
			from.component.Spec.Requires = append(from.component.Spec.Requires, r)
		}
	}
}

// requireOutside adds a server beyond the cluster. Its ports and host come from its interfaces, or
// from the declaration that an export has kept.
func (i *importer) requireOutside(at string, from, to *part) {
	spec := &from.component.Spec
	if from.about.Component != nil {
		for _, known := range from.about.Component.RequiresOutside {
			if cmp.Or(known.Host, known.CIDR) == to.node.Name && !slices.ContainsFunc(spec.RequiresOutside, func(o architecture.OutsideRequirement) bool { return o.Name == known.Name }) {
				spec.RequiresOutside = append(spec.RequiresOutside, known)
				return
			}
		}
	}
	name, err := objectName(at, to.node.UniqueID)
	if err != nil {
		i.note("%v", err)
		return
	}
	o := architecture.OutsideRequirement{Name: name}
	for n := range to.node.Interfaces {
		in := &to.node.Interfaces[n]
		o.Host = cmp.Or(o.Host, in.Host)
		raw := in.Port
		if in.Config != nil {
			o.Host = cmp.Or(o.Host, in.Config.Host)
			if len(raw) == 0 {
				raw = in.Config.Port
			}
		}
		if port, err := parsePort(raw); err == nil && port.Type == intstr.Int {
			o.Ports = append(o.Ports, architecture.OutsidePort{Port: port.IntVal, Protocol: transport(in.Protocol)})
		}
	}
	if o.Host == "" {
		o.CIDR = "0.0.0.0/0"
		i.note("%s: the document has no host of %q: %s may connect to all addresses; correct it", at, to.node.UniqueID, from.component.Name)
	}
	if !slices.ContainsFunc(spec.RequiresOutside, func(other architecture.OutsideRequirement) bool { return other.Name == o.Name }) {
		spec.RequiresOutside = append(spec.RequiresOutside, o)
	}
}

// result returns what was made. A System without members is left out, since it may not exist.
func (i *importer) result() *Imported {
	out := &Imported{}
	for _, p := range i.order {
		switch {
		case p.component != nil:
			out.Components = append(out.Components, p.component)
		case p.system != nil:
			s := &p.system.Spec
			if len(s.Namespaces)+len(s.Components)+len(s.Systems) == 0 && s.ComponentSelector == nil {
				i.note("%s: the system %s is left out: it has no parts", p.at, p.system.Name)
				continue
			}
			out.Systems = append(out.Systems, p.system)
		}
	}
	slices.Sort(i.notes)
	out.Notes = slices.Compact(i.notes)
	return out
}
