package architecture

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"
)

// TrafficWindow is how long after its last connection a Flow counts.
const TrafficWindow = time.Hour

// Cluster answers questions about pods that a Model does not know.
type Cluster struct {
	// Labels returns the labels of the pods of a workload, or nil.
	Labels func(End) map[string]string
	// Port returns the numbers of the containers' ports with a name, in a component's pods.
	Port func(to ComponentReference, name string) []int32
}

// Undeclared describes the Flows within TrafficWindow that no declaration allows, by the component
// that has to declare them: the source, or the destination if the source is none. next is the time
// until a described Flow leaves the window; 0 if there is none.
func (m *Model) Undeclared(flows []Flow, c Cluster, now time.Time) (by map[ComponentReference][]string, next time.Duration) {
	by = map[ComponentReference][]string{}
	for _, f := range flows {
		left := f.LastSeen.Add(TrafficWindow).Sub(now)
		if left <= 0 {
			continue
		}
		ref, text := m.undeclared(f, c)
		if text == "" {
			continue
		}
		if f.Verdict == Denied {
			text += " (denied)"
		}
		by[ref] = append(by[ref], text)
		if next == 0 || left < next {
			next = left
		}
	}
	for ref := range by {
		slices.Sort(by[ref])
		by[ref] = slices.Compact(by[ref])
	}
	return by, next
}

// undeclared returns the component and the sentence of a Flow that no declaration allows.
func (m *Model) undeclared(f Flow, c Cluster) (ref ComponentReference, text string) {
	from, to := m.componentsAt(f.From, c), m.componentsAt(f.To.End, c)
	at := fmt.Sprintf("%d/%s", f.To.Port, cmp.Or(f.To.Protocol, "TCP"))
	switch {
	case f.From.Kind == "Node" || f.To.Kind == "Node" || f.To.Port == dnsPort && len(to) == 0:
		// Nodes pass on others' connections, and run the API servers and the cluster's DNS.
		return ref, ""
	case len(from) > 0 && len(to) > 0:
		for _, a := range from {
			for _, b := range to {
				if a == b || m.allows(a, b, f, c) {
					return ref, ""
				}
			}
		}
		return from[0], fmt.Sprintf("%s connects to component %s at %s, which no requirement declares", f.From, to[0], at)
	case len(from) > 0:
		for _, a := range from {
			if f.To.Outside && m.allowsOutside(a, f.To) {
				return ref, ""
			}
		}
		if f.To.Outside {
			return from[0], fmt.Sprintf("%s connects to servers beyond the cluster at %s, which spec.requiresOutside does not declare", f.From, at)
		}
		return from[0], fmt.Sprintf("%s connects to %s at %s, which belongs to no component", f.From, f.To.End, at)
	case len(to) > 0:
		for _, b := range to {
			if m.exposes(b, f.To, c) {
				return ref, ""
			}
		}
		if f.From.Outside {
			return to[0], fmt.Sprintf("clients beyond the cluster connect to %s at %s, which spec.exposed does not declare", f.To.End, at)
		}
		return to[0], fmt.Sprintf("%s, which belongs to no component, connects to %s at %s", f.From, f.To.End, at)
	}
	return ref, ""
}

func (e End) String() string {
	switch {
	case e.Outside:
		return "outside"
	case e.Namespace == "":
		return e.Kind + " " + e.Name
	}
	return e.Kind + " " + e.Namespace + "/" + e.Name
}

func (m *Model) componentsAt(e End, c Cluster) []ComponentReference {
	if e.Outside || e.Namespace == "" {
		return nil
	}
	if set := c.Labels(e); set != nil {
		return m.Of(e.Namespace, set)
	}
	return nil
}

// allows reports whether a permitted requirement allows a Flow.
func (m *Model) allows(from, to ComponentReference, f Flow, c Cluster) bool {
	for i := range m.components[from].Spec.Requires {
		target, offers, found := m.Offers(from, i)
		if found && target == to && m.Permitted(from, i) && slices.ContainsFunc(offers, func(o Offer) bool { return o.is(to, f.To, c) }) {
			return true
		}
	}
	return m.exposes(to, f.To, c)
}

// is reports whether an offer of a component is the port of a destination.
func (o Offer) is(of ComponentReference, to Destination, c Cluster) bool {
	if cmp.Or(o.Protocol, "TCP") != cmp.Or(to.Protocol, "TCP") {
		return false
	}
	if o.Port.Type == intstr.Int {
		return o.Port.IntVal == to.Port
	}
	return slices.Contains(c.Port(of, o.Port.StrVal), to.Port)
}

func (m *Model) exposes(ref ComponentReference, to Destination, c Cluster) bool {
	spec := &m.components[ref].Spec
	return slices.ContainsFunc(spec.Offers, func(o Offer) bool { return slices.Contains(spec.Exposed, o.Name) && o.is(ref, to, c) })
}

// allowsOutside compares ports alone: nodes tell only some addresses beyond the cluster.
func (m *Model) allowsOutside(from ComponentReference, to Destination) bool {
	return slices.ContainsFunc(m.components[from].Spec.RequiresOutside, func(o OutsideRequirement) bool {
		return len(o.Ports) == 0 || slices.ContainsFunc(o.Ports, func(p OutsidePort) bool {
			return p.Port == to.Port && cmp.Or(p.Protocol, "TCP") == cmp.Or(to.Protocol, "TCP")
		})
	})
}
