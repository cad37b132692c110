package endpoint

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/client"
)

// plan changes the slices of one owner to the wanted state. It touches as few slices as it can,
// since each touched slice is sent to every node.
type plan struct {
	owner       client.Object
	gvk         schema.GroupVersionKind
	have        []*discoveryv1.EndpointSlice
	want        []group
	limit       int
	labels      map[string]string
	annotations map[string]string
	trigger     string
	// replaceAnnotations replaces all annotations of the slices (mirroring) instead of adding to
	// them.
	replaceAnnotations bool
}

// draft is the wanted state of a slice; old is nil for a new slice.
type draft struct {
	old       *discoveryv1.EndpointSlice
	ports     []discoveryv1.EndpointPort
	endpoints []discoveryv1.Endpoint
	touched   bool
}

func (p *plan) apply(ctx context.Context, c client.Interface) error {
	used := map[*discoveryv1.EndpointSlice]bool{}
	for _, g := range p.want {
		drafts := p.fit(g, used)
		for _, d := range drafts {
			if err := p.write(ctx, c, g, d); err != nil {
				return err
			}
		}
	}
	for _, s := range p.have {
		if used[s] || s.DeletionTimestamp != nil {
			continue
		}
		err := client.Delete[*discoveryv1.EndpointSlice](ctx, c, s.Namespace, s.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &s.UID}})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// fit places a group's endpoints into the slices with its ports. Existing endpoints stay in their
// slice. New ones go into slices that change anyway, then into slices with room, then into new
// slices. Empty slices are not used.
func (p *plan) fit(g group, used map[*discoveryv1.EndpointSlice]bool) []*draft {
	missing := map[string]*discoveryv1.Endpoint{}
	var order []string
	for i := range g.endpoints {
		id := endpointID(&g.endpoints[i])
		if _, twice := missing[id]; !twice {
			order = append(order, id)
		}
		missing[id] = &g.endpoints[i]
	}
	id := portsID(g.ports)
	var drafts []*draft
	for _, s := range p.have {
		if s.AddressType != g.addressType || portsID(s.Ports) != id || !ownedBy(p.owner, metav1.GetControllerOfNoCopy(s)) || s.DeletionTimestamp != nil || used[s] {
			continue
		}
		d := &draft{old: s, ports: g.ports}
		for i := range s.Endpoints {
			eid := endpointID(&s.Endpoints[i])
			e, ok := missing[eid]
			if !ok {
				d.touched = true
				continue
			}
			if !equality.Semantic.DeepEqual(*e, s.Endpoints[i]) {
				d.touched = true
			}
			d.endpoints = append(d.endpoints, *e)
			delete(missing, eid)
		}
		drafts = append(drafts, d)
	}
	var rest []discoveryv1.Endpoint
	for _, eid := range order {
		if e, ok := missing[eid]; ok {
			rest = append(rest, *e)
		}
	}
	for _, touchedOnly := range []bool{true, false} {
		for _, d := range drafts {
			if n := min(len(rest), p.limit-len(d.endpoints)); n > 0 && (d.touched || !touchedOnly) {
				d.endpoints, rest, d.touched = append(d.endpoints, rest[:n]...), rest[n:], true
			}
		}
	}
	for len(rest) > 0 {
		n := min(len(rest), p.limit)
		drafts = append(drafts, &draft{ports: g.ports, endpoints: rest[:n], touched: true})
		rest = rest[n:]
	}
	// Delete empty slices. The last one stays if the group is empty, to show that there are no
	// endpoints.
	kept := slices.DeleteFunc(slices.Clone(drafts), func(d *draft) bool { return len(d.endpoints) == 0 })
	if len(kept) == 0 && len(g.endpoints) == 0 {
		if len(drafts) > 0 {
			kept = drafts[:1]
		} else {
			kept = []*draft{{ports: g.ports, touched: true}}
		}
	}
	for _, d := range kept {
		if d.old != nil {
			used[d.old] = true
		}
	}
	return kept
}

// write creates the slice, or updates it if it differs.
func (p *plan) write(ctx context.Context, c client.Interface, g group, d *draft) error {
	if d.old == nil {
		s := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: p.owner.GetNamespace(), GenerateName: p.owner.GetName() + "-", Labels: maps.Clone(p.labels),
				Annotations: p.annotated(nil), OwnerReferences: controllerRef(p.owner, p),
			},
			AddressType: g.addressType, Endpoints: d.endpoints, Ports: d.ports,
		}
		if s.Endpoints == nil {
			s.Endpoints = []discoveryv1.Endpoint{}
		}
		if _, err := client.Create(ctx, c, s); err != nil {
			return fmt.Errorf("failed to create EndpointSlice for %s %s/%s: %w", p.gvk.Kind, s.Namespace, p.owner.GetName(), err)
		}
		return nil
	}
	sameLabels := maps.Equal(d.old.Labels, p.labels)
	sameAnnotations := !p.replaceAnnotations || maps.Equal(without(d.old.Annotations), without(p.annotations))
	if !d.touched && sameLabels && sameAnnotations {
		return nil
	}
	s := d.old.DeepCopy()
	s.Labels, s.Endpoints, s.Ports = maps.Clone(p.labels), d.endpoints, d.ports
	s.Annotations = p.annotated(s.Annotations)
	_, err := client.Update(ctx, c, s)
	return err
}

// annotated returns the annotations of a slice with the wanted ones added.
func (p *plan) annotated(have map[string]string) map[string]string {
	out := map[string]string{}
	if !p.replaceAnnotations {
		maps.Copy(out, have)
	}
	maps.Copy(out, p.annotations)
	if p.trigger != "" {
		out[corev1.EndpointsLastChangeTriggerTime] = p.trigger
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

// without returns the map without the trigger time, which alone is no reason to write.
func without(m map[string]string) map[string]string {
	out := maps.Clone(m)
	delete(out, corev1.EndpointsLastChangeTriggerTime)
	return out
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}

func sortStrings(s []string) { slices.Sort(s) }
