package admission

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/knarr-project/knarr/internal/architecture"
)

// byAddress is the index of pods, nodes and Services by their addresses. It exists once a node has
// written traffic.
const byAddress = "admission/address"

// maxConnections bounds what one update adds to an entry.
const maxConnections = 1 << 40

// traffic lets a node's parts update the Traffic of the node. The entries that they send have
// addresses. The plugin replaces these by workloads and Services, since a node may not read other
// nodes' pods, and adds the entries to those of the stored object. All else of the object stays.
func (p nodeRestriction) traffic(ctx context.Context, node string, a *Attributes) error {
	if a.Operation != Update || a.Subresource != "" {
		return fmt.Errorf("node %q can only update its Traffic", node)
	}
	if a.Name != node {
		return fmt.Errorf("node %q can only update the Traffic of its own name", node)
	}
	u, ok := a.Object.(*unstructured.Unstructured)
	old, ok2 := a.OldObject.(*unstructured.Unstructured)
	if !ok || !ok2 {
		return fmt.Errorf("unexpected type %T", a.Object)
	}
	var sent, stored architecture.Traffic
	if err := architecture.From(u, &sent); err != nil {
		return err
	}
	if err := architecture.From(old, &stored); err != nil {
		return err
	}
	if len(sent.Entries) > architecture.MaxFlows {
		return fmt.Errorf("entries: %d are too many: at most %d are allowed", len(sent.Entries), architecture.MaxFlows)
	}
	where, err := p.addresses()
	if err != nil {
		return err
	}
	now := p.now()
	var added []architecture.Flow
	for _, f := range sent.Entries {
		if p.resolve(ctx, where, node, &f, now) {
			added = append(added, f)
		}
	}
	stored.Entries = architecture.MergeFlows(now, stored.Entries, added)
	merged, err := stored.Unstructured()
	if err != nil {
		return err
	}
	version := u.GetResourceVersion()
	u.Object = old.DeepCopy().Object
	u.SetResourceVersion(version)
	u.Object["entries"] = merged.Object["entries"]
	return nil
}

// resolve names the ends of a flow that a node has sent. It returns false for one to leave out: its
// ends are unknown, or it belongs to another node's record.
func (p nodeRestriction) resolve(ctx context.Context, where directory, node string, f *architecture.Flow, now time.Time) bool {
	from, fromNode, ok := p.end(ctx, where, f.From)
	if !ok {
		return false
	}
	to, toNode, ok := p.end(ctx, where, f.To.End)
	if !ok || fromNode != node && toNode != node {
		return false
	}
	if f.Verdict == architecture.Allowed && !from.Outside && !to.Outside && toNode != node {
		return false // the destination's node tells whether it is allowed there
	}
	f.From, f.To.End = from, to
	f.Service, f.Via = where.service(f.Via), ""
	f.Addresses = where.beyond(f)
	if f.LastSeen.After(now) {
		f.LastSeen = metav1.NewTime(now)
	}
	if f.LastSeen.Before(&f.FirstSeen) {
		f.FirstSeen = f.LastSeen
	}
	f.Connections = min(max(f.Connections, 0), maxConnections)
	return true
}

// end returns the workload or node of an address, and the node that it is on.
func (p nodeRestriction) end(ctx context.Context, where directory, sent architecture.End) (end architecture.End, node string, ok bool) {
	if sent.Outside {
		return architecture.End{Outside: true}, "", true
	}
	if pod := where.pod(sent.Address); pod != nil {
		return p.workload(ctx, pod), pod.Spec.NodeName, true
	}
	if n := where.node(sent.Address); n != nil {
		return architecture.End{Kind: "Node", Name: n.Name}, n.Name, true
	}
	return end, "", false
}

// beyond returns the addresses of a flow that are beyond the cluster, in their usual form.
func (d directory) beyond(f *architecture.Flow) (all []string) {
	if !f.To.Outside || len(f.Addresses) > architecture.MaxAddresses {
		return nil
	}
	for _, text := range f.Addresses {
		address, err := netip.ParseAddr(text)
		if err != nil || address.Zone() != "" {
			continue
		}
		if text = address.Unmap().String(); d.pod(text) == nil && d.node(text) == nil {
			all = append(all, text)
		}
	}
	return architecture.MergeAddresses(all, nil)
}

// workload returns the object that a pod belongs to: its owner, and that one's owner for
// Deployments and CronJobs.
func (p nodeRestriction) workload(ctx context.Context, pod *corev1.Pod) architecture.End {
	end := architecture.End{Namespace: pod.Namespace, Kind: "Pod", Name: pod.Name}
	owner := metav1.GetControllerOf(pod)
	if owner == nil || owner.Kind == "Node" {
		return end
	}
	end.Kind, end.Name = owner.Kind, owner.Name
	switch owner.Kind {
	case "ReplicaSet":
		// A Deployment names its ReplicaSets so.
		if name, made := strings.CutSuffix(owner.Name, "-"+pod.Labels["pod-template-hash"]); made && pod.Labels["pod-template-hash"] != "" {
			end.Kind, end.Name = "Deployment", name
		}
	case "Job":
		if job, err := p.jobs.Find(ctx, pod.Namespace, owner.Name); err == nil {
			if of := metav1.GetControllerOf(job); of != nil {
				end.Kind, end.Name = of.Kind, of.Name
			}
		}
	}
	return end
}

// directory finds objects by address.
type directory struct {
	pod  func(address string) *corev1.Pod
	node func(address string) *corev1.Node
	// service returns namespace/name of the Service at an address and port, or "".
	service func(addrPort string) string
}

func (p nodeRestriction) addresses() (directory, error) {
	pods, err := p.pods.View()
	nodes, err2 := p.nodes.View()
	services, err3 := p.services.View()
	if err := errors.Join(err, err2, err3); err != nil {
		return directory{}, err
	}
	pods.AddIndex(byAddress, podAddresses)
	nodes.AddIndex(byAddress, nodeAddresses)
	services.AddIndex(byAddress, serviceAddresses)
	return directory{
		pod: func(address string) *corev1.Pod { return latest(pods.ByIndex(byAddress, address)) },
		node: func(address string) *corev1.Node {
			for _, n := range nodes.ByIndex(byAddress, address) {
				return n
			}
			return nil
		},
		service: func(addrPort string) string {
			at, err := netip.ParseAddrPort(addrPort)
			if err != nil {
				return ""
			}
			for _, s := range services.ByIndex(byAddress, at.Addr().String()) {
				if hasPort(s, at.Port(), false) {
					return s.Namespace + "/" + s.Name
				}
			}
			if len(nodes.ByIndex(byAddress, at.Addr().String())) == 0 {
				return ""
			}
			for _, s := range services.ByIndex(byAddress, anyNode) {
				if hasPort(s, at.Port(), true) {
					return s.Namespace + "/" + s.Name
				}
			}
			return ""
		},
	}, nil
}

// latest returns the pod that has an address now, or the last one that had it.
func latest(pods []*corev1.Pod) (last *corev1.Pod) {
	for _, pod := range pods {
		if last == nil || ended(last) && !ended(pod) || ended(last) == ended(pod) && last.CreationTimestamp.Before(&pod.CreationTimestamp) {
			last = pod
		}
	}
	return last
}

func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// podAddresses are those of a pod with a network of its own.
func podAddresses(pod *corev1.Pod) (all []string) {
	if pod.Spec.HostNetwork {
		return nil
	}
	for _, ip := range pod.Status.PodIPs {
		all = append(all, canonical(ip.IP))
	}
	return all
}

// canonical returns an address in the form in which nodes send it. IPv6 has several.
func canonical(address string) string {
	a, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	return a.Unmap().String()
}

// nodeAddresses are a node's own ones, and the first two of its pod ranges: the source of its
// packets to other nodes' pods, and the gateway of its own pods.
func nodeAddresses(n *corev1.Node) (all []string) {
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP {
			all = append(all, canonical(a.Address))
		}
	}
	for _, cidr := range n.Spec.PodCIDRs {
		if r, err := netip.ParsePrefix(cidr); err == nil {
			first := r.Masked().Addr()
			all = append(all, first.String(), first.Next().String())
		}
	}
	return all
}

// anyNode is the index value of Services with node ports.
const anyNode = "node"

func serviceAddresses(s *corev1.Service) []string {
	var all []string
	for _, ip := range slices.Concat(s.Spec.ClusterIPs, s.Spec.ExternalIPs) {
		all = append(all, canonical(ip))
	}
	for _, in := range s.Status.LoadBalancer.Ingress {
		if in.IP != "" {
			all = append(all, canonical(in.IP))
		}
	}
	if s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		all = append(all, anyNode)
	}
	return all
}

func hasPort(s *corev1.Service, port uint16, ofNode bool) bool {
	for _, p := range s.Spec.Ports {
		if !ofNode && p.Port == int32(port) || ofNode && p.NodePort == int32(port) {
			return true
		}
	}
	return false
}
