package architecture

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/knarr-project/knarr/internal/architecture"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// observe returns what the cluster shows of a Component. again is the delay until that changes
// without an event; 0 means never.
func (a *architect) observe(m *architecture.Model, c *architecture.Component) (o architecture.Observation, again time.Duration) {
	ref := c.Reference()
	o.ReadyOf = map[architecture.ComponentReference]int32{}
	for i := range c.Spec.Requires {
		if to, _, found := m.Offers(ref, i); found {
			o.ReadyOf[to] = a.ready(m, to)
		}
	}
	for _, offer := range c.Spec.Offers {
		if _, ok := a.services.Get(c.Namespace, offer.Service); offer.Service != "" && !ok {
			o.MissingServices = append(o.MissingServices, offer.Service)
		}
	}
	pods := a.pods.List(c.Namespace, m.Selector(ref))
	o.Workloads = a.workloads(m, c, pods)
	for _, w := range o.Workloads {
		o.Ready, o.Desired = o.Ready+w.Ready, o.Desired+w.Desired
	}
	o.Excess = c.ExcessiveAccess(a.grants(c.Namespace, accounts(pods)))
	var undeclared map[architecture.ComponentReference][]string
	if m.Network(ref) != architecture.NetworkNone {
		var flows []architecture.Flow
		flows, o.Watched = a.traffic(c)
		undeclared, again = m.Undeclared(flows, architecture.Cluster{Labels: a.labelsOf, Port: func(to architecture.ComponentReference, name string) []int32 { return a.portsOf(m, to, name) }}, a.env.Now())
		o.Undeclared = undeclared[ref]
	}
	return o, again
}

// ready counts the ready pods of a Component.
func (a *architect) ready(m *architecture.Model, ref architecture.ComponentReference) (n int32) {
	for _, p := range a.pods.List(ref.Namespace, m.Selector(ref)) {
		if controller.PodReady(p) && p.DeletionTimestamp == nil {
			n++
		}
	}
	return n
}

// workloads returns the workloads that a Component selects, and the pods of no workload, sorted.
func (a *architect) workloads(m *architecture.Model, c *architecture.Component, pods []*corev1.Pod) (out []architecture.Workload) {
	ref := c.Reference()
	ready := map[architecture.Workload]int32{} // by kind and name of the pods' topmost owners
	bare := map[architecture.Workload]bool{}
	for _, p := range pods {
		if controller.PodEnded(p) || p.DeletionTimestamp != nil {
			continue
		}
		kind, name := a.topmost(p)
		at := architecture.Workload{Kind: kind, Name: name}
		if kind == "Pod" {
			bare[at] = true
		}
		if controller.PodReady(p) {
			ready[at]++
		}
	}
	add := func(kind, name string, set map[string]string, desired int32) {
		if m.Selects(ref, set) {
			out = append(out, architecture.Workload{Kind: kind, Name: name, Desired: desired, Ready: ready[architecture.Workload{Kind: kind, Name: name}]})
		}
	}
	one := func(n *int32) int32 {
		if n == nil {
			return 1
		}
		return *n
	}
	for _, d := range a.deployments.List(c.Namespace, nil) {
		add("Deployment", d.Name, d.Spec.Template.Labels, one(d.Spec.Replicas))
	}
	for _, s := range a.stateful.List(c.Namespace, nil) {
		add("StatefulSet", s.Name, s.Spec.Template.Labels, one(s.Spec.Replicas))
	}
	for _, d := range a.daemons.List(c.Namespace, nil) {
		add("DaemonSet", d.Name, d.Spec.Template.Labels, d.Status.DesiredNumberScheduled)
	}
	for _, s := range a.sets.List(c.Namespace, nil) {
		if metav1.GetControllerOfNoCopy(s) == nil {
			add("ReplicaSet", s.Name, s.Spec.Template.Labels, one(s.Spec.Replicas))
		}
	}
	for _, j := range a.jobs.List(c.Namespace, nil) {
		if metav1.GetControllerOfNoCopy(j) == nil {
			add("Job", j.Name, j.Spec.Template.Labels, j.Status.Active)
		}
	}
	for _, j := range a.cronJobs.List(c.Namespace, nil) {
		add("CronJob", j.Name, j.Spec.JobTemplate.Spec.Template.Labels, 0)
	}
	for at := range bare {
		at.Ready, at.Desired = ready[at], 1
		out = append(out, at)
	}
	slices.SortFunc(out, func(x, y architecture.Workload) int {
		return cmp.Or(cmp.Compare(x.Kind, y.Kind), cmp.Compare(x.Name, y.Name))
	})
	return out
}

// topmost returns the workload that a pod belongs to, as nodes name it in Traffic.
func (a *architect) topmost(p *corev1.Pod) (kind, name string) {
	owner := metav1.GetControllerOfNoCopy(p)
	if owner == nil {
		return "Pod", p.Name
	}
	switch owner.Kind {
	case "ReplicaSet":
		if s, ok := a.sets.Get(p.Namespace, owner.Name); ok {
			if above := metav1.GetControllerOfNoCopy(s); above != nil {
				return above.Kind, above.Name
			}
		}
	case "Job":
		if j, ok := a.jobs.Get(p.Namespace, owner.Name); ok {
			if above := metav1.GetControllerOfNoCopy(j); above != nil {
				return above.Kind, above.Name
			}
		}
	}
	return owner.Kind, owner.Name
}

// labelsOf returns the labels of the pods of a workload, or nil.
func (a *architect) labelsOf(e architecture.End) map[string]string {
	switch e.Kind {
	case "Deployment":
		return labelsIn(a.deployments, e, func(d *appsv1.Deployment) map[string]string { return d.Spec.Template.Labels })
	case "StatefulSet":
		return labelsIn(a.stateful, e, func(s *appsv1.StatefulSet) map[string]string { return s.Spec.Template.Labels })
	case "DaemonSet":
		return labelsIn(a.daemons, e, func(d *appsv1.DaemonSet) map[string]string { return d.Spec.Template.Labels })
	case "ReplicaSet":
		return labelsIn(a.sets, e, func(s *appsv1.ReplicaSet) map[string]string { return s.Spec.Template.Labels })
	case "Pod":
		return labelsIn(a.pods, e, func(p *corev1.Pod) map[string]string { return p.Labels })
	case "Job":
		if j, ok := a.jobs.Get(e.Namespace, e.Name); ok {
			return j.Spec.Template.Labels
		}
	case "CronJob":
		if j, ok := a.cronJobs.Get(e.Namespace, e.Name); ok {
			return j.Spec.JobTemplate.Spec.Template.Labels
		}
	}
	return nil
}

func labelsIn[T client.Object](view client.ViewOf[T], e architecture.End, of func(T) map[string]string) map[string]string {
	if obj, ok := view.Get(e.Namespace, e.Name); ok {
		return of(obj)
	}
	return nil
}

// portsOf returns the numbers of the containers' ports with a name.
func (a *architect) portsOf(m *architecture.Model, ref architecture.ComponentReference, name string) (numbers []int32) {
	for _, p := range a.pods.List(ref.Namespace, m.Selector(ref)) {
		for i := range p.Spec.Containers {
			for _, port := range p.Spec.Containers[i].Ports {
				if port.Name == name && !slices.Contains(numbers, port.ContainerPort) {
					numbers = append(numbers, port.ContainerPort)
				}
			}
		}
	}
	return numbers
}

// traffic returns the Flows that begin or end in a Component's namespace, and whether a node
// reports any.
func (a *architect) traffic(c *architecture.Component) (flows []architecture.Flow, watched bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.unread {
		a.unread, a.flows = false, nil
		nodes := a.traffics.List("", nil)
		for _, obj := range nodes {
			u, ok := obj.(*unstructured.Unstructured)
			var t architecture.Traffic
			if !ok {
				continue
			}
			if err := architecture.From(u, &t); err != nil {
				a.env.Logger().Error("cannot read traffic", "controller", name, "node", u.GetName(), "error", err)
				continue
			}
			a.flows = append(a.flows, t.Entries...)
		}
		a.watched = len(nodes) > 0
	}
	for _, f := range a.flows {
		if f.From.Namespace == c.Namespace || f.To.Namespace == c.Namespace {
			flows = append(flows, f)
		}
	}
	return flows, a.watched
}

// accounts returns the service accounts whose tokens are mounted into pods, sorted.
func accounts(pods []*corev1.Pod) (names []string) {
	for _, p := range pods {
		mounts := slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s corev1.VolumeProjection) bool { return s.ServiceAccountToken != nil })
		})
		if mounts && !slices.Contains(names, p.Spec.ServiceAccountName) {
			names = append(names, p.Spec.ServiceAccountName)
		}
	}
	slices.Sort(names)
	return names
}

// grants returns what bindings give to service accounts of a namespace.
func (a *architect) grants(namespace string, accounts []string) (out []architecture.Grant) {
	for _, account := range accounts {
		u := auth.ServiceAccount(namespace, account)
		g := architecture.Grant{Account: namespace + "/" + account}
		for _, b := range a.clusterWide.List("", nil) {
			if !concerns(b.Subjects, "", namespace, account, u) {
				continue
			}
			if role, ok := a.clusterRole.Get("", b.RoleRef.Name); ok {
				g.Binding, g.Role, g.Rules = "ClusterRoleBinding "+b.Name, "ClusterRole "+role.Name, role.Rules
				out = append(out, g)
			}
		}
		for _, b := range a.bindings.List("", nil) {
			if !concerns(b.Subjects, b.Namespace, namespace, account, u) {
				continue
			}
			g.Namespace, g.Binding = b.Namespace, "RoleBinding "+b.Namespace+"/"+b.Name
			if b.RoleRef.Kind == "Role" {
				if role, ok := a.roles.Get(b.Namespace, b.RoleRef.Name); ok {
					g.Role, g.Rules = "Role "+role.Name, role.Rules
					out = append(out, g)
				}
			} else if role, ok := a.clusterRole.Get("", b.RoleRef.Name); ok {
				g.Role, g.Rules = "ClusterRole "+role.Name, role.Rules
				out = append(out, g)
			}
		}
	}
	return out
}

// concerns reports whether subjects of a binding contain a service account.
func concerns(subjects []rbacv1.Subject, bound, namespace, account string, u auth.User) bool {
	return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
		switch s.Kind {
		case rbacv1.ServiceAccountKind:
			return s.Name == account && cmp.Or(s.Namespace, bound) == namespace
		case rbacv1.UserKind:
			return s.Name == u.Name
		case rbacv1.GroupKind:
			return slices.Contains(u.Groups, s.Name)
		}
		return false
	})
}

// apiServers is the Service of the API servers in the namespace default.
const apiServers = "kubernetes"

// addresses returns the cluster's ranges and API servers.
func (a *architect) addresses() (at architecture.Addresses) {
	for _, ranges := range []string{a.env.Config.PodCIDR, a.env.Config.ServiceCIDR} {
		for text := range strings.SplitSeq(ranges, ",") {
			if p, err := netip.ParsePrefix(strings.TrimSpace(text)); err == nil {
				at.Inside = append(at.Inside, p)
			}
		}
	}
	for _, slice := range a.slices.List(metav1.NamespaceDefault, nil) {
		if slice.Labels[discoveryv1.LabelServiceName] != apiServers {
			continue
		}
		for _, e := range slice.Endpoints {
			for _, p := range slice.Ports {
				if addr, err := netip.ParseAddr(first(e.Addresses)); err == nil && p.Port != nil {
					at.APIServers = append(at.APIServers, netip.AddrPortFrom(addr, uint16(*p.Port)))
				}
			}
		}
	}
	slices.SortFunc(at.APIServers, netip.AddrPort.Compare)
	return at
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}
