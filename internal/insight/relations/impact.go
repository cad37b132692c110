package relations

import (
	"cmp"
	"slices"
)

// Effect is the loss that one component suffers.
type Effect struct {
	Component ID `json:"component"`
	// Lost is the part of its ready pods, or of what it depends on, that is gone: 0 to 1.
	Lost float64 `json:"lost"`
	// Distance is the number of relations between the component and the lost thing: 0 for the
	// thing's own component.
	Distance int `json:"distance"`
	// Because is the component through which the loss arrives, the zero ID at distance 0.
	Because ID `json:"because,omitzero"`
	// How says what is lost, or the Service of the relation.
	How string `json:"how"`
}

// Impact returns the components that suffer from the losses at distance 0, the hardest hit first. A
// loss counts half at each further relation, since a caller usually has other work, and half again
// at a relation that is declared as optional. A relation that only denied connections tell of
// carries no loss.
func (g *Graph) Impact(first []Effect) []Effect {
	worst := map[ID]Effect{}
	queue := slices.Clone(first)
	for len(queue) > 0 {
		e := queue[0]
		queue = queue[1:]
		if old, ok := worst[e.Component]; ok && old.Lost >= e.Lost {
			continue
		}
		worst[e.Component] = e
		for _, r := range g.Relations {
			if r.To != e.Component || slices.Equal(r.Sources, []Source{Denied}) {
				continue
			}
			lost := e.Lost
			if e.Distance > 0 {
				lost /= 2
			}
			if r.Optional {
				lost /= 2
			}
			queue = append(queue, Effect{Component: r.From, Lost: lost, Distance: e.Distance + 1, Because: e.Component, How: cmp.Or(r.Through, "connections")})
		}
	}
	out := make([]Effect, 0, len(worst))
	for _, e := range worst {
		out = append(out, e)
	}
	slices.SortFunc(out, func(a, b Effect) int {
		return cmp.Or(cmp.Compare(a.Distance, b.Distance), cmp.Compare(b.Lost, a.Lost), compareID(a.Component, b.Component))
	})
	return out
}

// LossOf returns the effects at distance 0 of the loss of a component, or of an object. found is
// false if the graph does not know it.
func (g *Graph) LossOf(what Object) (effects []Effect, found bool) {
	for i := range g.Components {
		c := &g.Components[i]
		if how, lost, hit := c.losesWith(what); hit {
			effects = append(effects, Effect{Component: c.ID, Lost: lost, How: how})
		}
	}
	return effects, len(effects) > 0
}

// losesWith reports what part of a component goes with an object.
func (c *Component) losesWith(what Object) (how string, lost float64, hit bool) {
	same := what.Namespace == c.ID.Namespace
	switch what.Kind {
	case "Component":
		return "the component itself", 1, same && what.Name == c.ID.Name
	case "Namespace":
		return "its namespace", 1, what.Name == c.ID.Namespace
	case "Node":
		all := 0
		for _, n := range c.Nodes {
			all += n
		}
		if n := c.Nodes[what.Name]; n > 0 {
			return share(n, all), float64(n) / float64(all), true
		}
	case "Service":
		for _, s := range c.Services {
			if same && s.Name == what.Name {
				return "Service " + s.Name, 1, true
			}
		}
	case "PersistentVolumeClaim":
		for _, name := range c.Data {
			if same && matches(name, what.Name) {
				return "its data", 1, true
			}
		}
	case "ConfigMap", "Secret":
		return "its settings, at the next start of its pods", 1, slices.Contains(c.Settings, what)
	default:
		return what.String(), 1, slices.Contains(c.Workloads, what)
	}
	return "", 0, false
}
