package peers

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// Controller publishes the members of the groups that policies need.
var Controller = controller.Starter{Name: name, Run: func(ctx context.Context, env controller.Env) error {
	p := &publisher{env: env, groups: map[string]*needed{}, written: map[string]time.Time{}}
	err := p.run(ctx)
	if apierrors.IsForbidden(err) { // another vendor's API server has no role for it
		<-ctx.Done()
		return nil
	}
	return err
}}

const (
	name = "policy-peers-controller"
	// interval is the minimum time between two changes of a group's slices, so that pods that start
	// together are published together.
	interval   = 50 * time.Millisecond
	groupIndex = "policypeers/group"
)

// publisher is the controller's state.
type publisher struct {
	env        controller.Env
	policies   client.ViewOf[*networkingv1.NetworkPolicy]
	pods       client.ViewOf[*corev1.Pod]
	namespaces client.ViewOf[*corev1.Namespace]
	slices     client.View
	written    map[string]time.Time // by group; the only worker owns it

	mu     sync.Mutex // guards groups
	groups map[string]*needed
}

// needed is a group with the policies that need it.
type needed struct {
	Matcher
	policies map[controller.Key]bool
}

func (p *publisher) run(ctx context.Context) (err error) {
	if p.policies, err = client.Open[*networkingv1.NetworkPolicy](ctx, p.env.Client, client.Scope{}); err != nil {
		return fmt.Errorf("open network policies: %w", err)
	}
	if err := p.awaitNeed(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	if p.slices, err = open(ctx, p.env.Client); err != nil || p.slices == nil {
		return err
	}
	p.slices.AddIndex(groupIndex, func(o runtime.Object) []string { return []string{groupOf(o)} })
	if p.namespaces, err = client.Open[*corev1.Namespace](ctx, p.env.Client, client.Scope{}); err != nil {
		return fmt.Errorf("open namespaces: %w", err)
	}
	if p.pods, err = client.Open[*corev1.Pod](ctx, p.env.Client, client.Scope{}); err != nil {
		return fmt.Errorf("open pods: %w", err)
	}
	loop := controller.Loop{
		Name: name, Clock: p.env.Clock, Log: p.env.Log, Queues: p.env.Queues, Reconcile: p.publish,
		Inputs: []controller.Input{
			controller.On(p.policies, p.policyChanged),
			controller.On(p.namespaces, p.namespaceChanged),
			controller.On(p.pods, p.podChanged),
			{View: p.slices, Keys: func(e client.Event) []controller.Key { return []controller.Key{{Name: groupOf(e.Object)}} }},
		},
	}
	return loop.Run(ctx)
}

// awaitNeed returns once a policy needs a group, or if slices of earlier ones may exist. Most
// clusters have no such policy, and need neither the definition nor Views.
func (p *publisher) awaitNeed(ctx context.Context) error {
	_, err := client.Get[*apiextensionsv1.CustomResourceDefinition](ctx, p.env.Client, "", Resource.GroupResource().String())
	if err == nil || !apierrors.IsNotFound(err) {
		return err
	}
	sub, cancel := context.WithCancel(ctx)
	found := make(chan struct{})
	var once sync.Once
	_, done := p.policies.Subscribe(sub, func(e client.TypedEvent[*networkingv1.NetworkPolicy]) {
		if groups, _ := Of(e.Object); len(groups) > 0 && e.Type != client.Deleted {
			once.Do(func() { close(found) })
		}
	})
	defer func() { cancel(); <-done }()
	select {
	case <-found:
	case <-ctx.Done():
	}
	return nil
}

func groupOf(slice runtime.Object) string {
	m, err := meta.Accessor(slice)
	if err != nil {
		return ""
	}
	return m.GetLabels()[GroupLabel]
}

func keys(ids map[string]bool) (out []controller.Key) {
	for id := range ids {
		out = append(out, controller.Key{Name: id})
	}
	return out
}

// policyChanged records which groups the policy needs.
func (p *publisher) policyChanged(e client.TypedEvent[*networkingv1.NetworkPolicy]) []controller.Key {
	var groups []Group
	if e.Type != client.Deleted {
		more := 0
		if groups, more = Of(e.Object); more > 0 {
			p.env.Events.Eventf(e.Object, nil, corev1.EventTypeWarning, "TooManyPeers", "Publish",
				"the policy has %d different peers and named ports, of which %d work: write them as fewer selectors, or as several policies", MaxGroups+more, MaxGroups)
		}
	}
	policy, affected := controller.KeyOf(e.Object), map[string]bool{}
	p.mu.Lock()
	defer p.mu.Unlock()
	want := map[string]bool{}
	for _, g := range groups {
		id := g.ID()
		want[id] = true
		if p.groups[id] == nil {
			p.groups[id] = &needed{g.Matcher(), map[controller.Key]bool{}}
		}
		if !p.groups[id].policies[policy] {
			p.groups[id].policies[policy], affected[id] = true, true
		}
	}
	if e.Old == nil && e.Type == client.Added {
		return keys(affected)
	}
	old := e.Old
	if e.Type == client.Deleted {
		old = e.Object
	}
	before, _ := Of(old)
	for _, g := range before {
		id := g.ID()
		if n := p.groups[id]; n != nil && !want[id] && n.policies[policy] {
			delete(n.policies, policy)
			affected[id] = true
			if len(n.policies) == 0 {
				delete(p.groups, id)
			}
		}
	}
	return keys(affected)
}

// namespaceChanged returns the groups that the namespace entered or left.
func (p *publisher) namespaceChanged(e client.TypedEvent[*corev1.Namespace]) []controller.Key {
	if e.Type == client.Modified && maps.Equal(e.Old.Labels, e.Object.Labels) {
		return nil
	}
	affected := map[string]bool{}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, g := range p.groups {
		was := e.Old != nil && g.MatchesNamespace(e.Old.Name, e.Old.Labels)
		if g.MatchesNamespace(e.Object.Name, e.Object.Labels) != was || e.Type == client.Deleted {
			affected[id] = true
		}
	}
	return keys(affected)
}

// podChanged returns the groups that had or have the pod as a member.
func (p *publisher) podChanged(e client.TypedEvent[*corev1.Pod]) []controller.Key {
	if e.Type == client.Modified && sameMember(e.Old, e.Object) {
		return nil
	}
	var of map[string]string
	if ns, ok := p.namespaces.Get("", e.Object.Namespace); ok {
		of = ns.Labels
	}
	affected := map[string]bool{}
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, g := range p.groups {
		if g.MatchesNamespace(e.Object.Namespace, of) && (g.MatchesPod(e.Object) || e.Old != nil && g.MatchesPod(e.Old)) {
			affected[id] = true
		}
	}
	return keys(affected)
}

// sameMember reports whether two states of a pod have the same labels and addresses. Ports do not
// change.
func sameMember(a, b *corev1.Pod) bool {
	return maps.Equal(a.Labels, b.Labels) && slices.Equal(Addresses(a), Addresses(b))
}

// publish brings the slices of a group up to date.
func (p *publisher) publish(ctx context.Context, key controller.Key) (controller.Result, error) {
	p.mu.Lock()
	group := p.groups[key.Name]
	p.mu.Unlock()
	have := p.slices.ByIndex(groupIndex, key.Name)
	if group == nil {
		delete(p.written, key.Name)
		return controller.Result{}, p.remove(ctx, have)
	}
	if wait := p.written[key.Name].Add(interval).Sub(p.env.Now()); wait > 0 && wait <= interval {
		return controller.Result{After: wait}, nil
	}
	changed, err := p.write(ctx, group.Group, have, p.members(group.Matcher))
	if changed {
		p.written[key.Name] = p.env.Now()
	}
	if apierrors.IsNotFound(err) { // the definition may have been deleted
		if e := define(ctx, p.env.Client); e != nil {
			return controller.Result{}, e
		}
	}
	return controller.Result{}, err
}

// members lists the members of a group.
func (p *publisher) members(g Matcher) (out []string) {
	in := []string{g.Namespace}
	if g.NamespaceSelector != nil {
		in = nil
		for _, ns := range p.namespaces.List("", nil) {
			if g.MatchesNamespace(ns.Name, ns.Labels) {
				in = append(in, ns.Name)
			}
		}
	}
	for _, ns := range in {
		for _, pod := range p.pods.List(ns, nil) {
			if g.MatchesPod(pod) {
				out = append(out, g.Members(pod)...)
			}
		}
	}
	return out
}

// write changes the slices that differ. Number 0 of a new group comes last: it shows that the group
// is complete.
func (p *publisher) write(ctx context.Context, g Group, have []runtime.Object, want []string) (changed bool, err error) {
	byNumber := map[int]*unstructured.Unstructured{}
	var now []held
	for _, o := range have {
		u, ok := o.(*unstructured.Unstructured)
		if !ok || numberOf(u.GetName()) < 0 {
			continue
		}
		number := numberOf(u.GetName())
		byNumber[number] = u
		now = append(now, held{number: number, members: membersOf(u)})
	}
	then := place(now, want)
	slices.SortFunc(then, func(a, b held) int { return b.number - a.number })
	for _, h := range then {
		if !h.changed {
			continue
		}
		changed = true
		old := byNumber[h.number]
		switch {
		case old == nil:
			var u *unstructured.Unstructured
			if u, err = Slice(g, h.number, h.members); err == nil {
				_, err = p.env.Client.Create(ctx, Resource, "", u, metav1.CreateOptions{})
			}
		case len(h.members) == 0 && h.number != 0:
			err = p.remove(ctx, []runtime.Object{old})
		default:
			u := old.DeepCopy()
			if err = setMembers(u, h.members); err == nil {
				_, err = p.env.Client.Update(ctx, Resource, u, metav1.UpdateOptions{})
			}
		}
		if err != nil {
			return changed, fmt.Errorf("slice %d of group %s: %w", h.number, g.ID(), err)
		}
	}
	return changed, nil
}

func (p *publisher) remove(ctx context.Context, have []runtime.Object) error {
	for _, o := range have {
		m, err := meta.Accessor(o)
		if err != nil {
			return err
		}
		uid := m.GetUID()
		err = p.env.Client.Delete(ctx, Resource, "", m.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("delete slice %s: %w", m.GetName(), err)
		}
	}
	return nil
}
