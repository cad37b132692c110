package relations

import (
	"fmt"
	"strings"
	"time"

	"github.com/knarr-project/knarr/internal/architecture"
)

// seen records the connections that nodes have seen. Those of a node's own processes are left out:
// nodes also pass on connections of others.
func (b *builder) seen(o *Objects, all []workload) {
	byObject := map[Object]*workload{}
	for i := range all {
		byObject[all[i].object] = &all[i]
	}
	end := func(e architecture.End) (ID, bool) {
		if e.Outside {
			b.component(Outside, "")
			return Outside, true
		}
		if e.Namespace == "" || e.Name == "" {
			return ID{}, false
		}
		if w := byObject[Object{e.Kind, e.Namespace, e.Name}]; w != nil {
			id, _ := b.id(w)
			return id, true
		}
		// Not among the objects: of another namespace, or deleted.
		id := ID{e.Namespace, e.Name}
		b.component(id, e.Namespace)
		return id, true
	}
	cluster := b.cluster(byObject)
	for _, f := range o.Flows {
		from, ok := end(f.From)
		to, ok2 := end(f.To.End)
		if !ok || !ok2 || from == to {
			continue
		}
		through := ""
		if f.Service != "" {
			through = "Service " + f.Service
		} else if to == Outside {
			through = o.through(f.Addresses)
		}
		source, sum := Seen, Sightings{Allowed: f.Connections, Last: f.LastSeen.Time}
		if f.Verdict == architecture.Denied {
			source, sum = Denied, Sightings{Denied: f.Connections, Last: f.LastSeen.Time}
		}
		noun := "connections"
		if f.Connections == 1 {
			noun = "connection"
		}
		at := ""
		if len(f.Addresses) > 0 {
			at = " of " + strings.Join(f.Addresses, ", ")
		}
		evidence := fmt.Sprintf("%d %s to port %d/%s%s, the last at %s", f.Connections, noun, f.To.Port, f.To.Protocol, at, f.LastSeen.UTC().Format(time.RFC3339))
		if source == Denied {
			evidence = "denied: " + evidence
		}
		record := b.relate(from, to, through, source, evidence)
		record.add(&found{seen: &sum, addresses: f.Addresses})
		if by, _ := b.model.Undeclared([]architecture.Flow{f}, cluster, f.LastSeen.Time); len(by) > 0 {
			record.differences[Undeclared] = true
		}
	}
}

// through names the Service without selector that all of the addresses belong to; "" if there is
// none.
func (o *Objects) through(addresses []string) string {
	service := Object{}
	for i, a := range addresses {
		found, ok := o.Beyond[a]
		if !ok || i > 0 && found != service {
			return ""
		}
		service = found
	}
	if service.Name == "" {
		return ""
	}
	return "Service " + service.Namespace + "/" + service.Name
}

// cluster answers the Model's questions from the workloads.
func (b *builder) cluster(byObject map[Object]*workload) architecture.Cluster {
	return architecture.Cluster{
		Labels: func(e architecture.End) map[string]string {
			if w := byObject[Object{e.Kind, e.Namespace, e.Name}]; w != nil {
				return w.labels
			}
			return nil
		},
		Port: func(to architecture.ComponentReference, name string) (ports []int32) {
			for _, w := range byObject {
				if w.object.Namespace != to.Namespace || !b.model.Selects(to, w.labels) {
					continue
				}
				for _, c := range containers(w.spec) {
					for _, p := range c.Ports {
						if p.Name == name {
							ports = append(ports, p.ContainerPort)
						}
					}
				}
			}
			return ports
		},
	}
}
