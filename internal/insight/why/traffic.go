package why

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Causes of denied packets.
const (
	causeEgress  = "network-policy-egress"
	causeIngress = "network-policy-ingress"

	causeServicePort = "service-port-absent"
	causeNoReceiver  = "service-no-receiver"
)

// Traffic is a connection from a pod to a pod or a Service.
type Traffic struct {
	From, To Ref
	// Port is that of the Service, or else of the receiving pod.
	Port     int32
	Protocol corev1.Protocol // TCP if empty
}

// Blocked explains which NetworkPolicies deny a connection. No finding means that they allow it.
func Blocked(s *Snapshot, t Traffic) []Finding {
	if t.Protocol == "" {
		t.Protocol = corev1.ProtocolTCP
	}
	if t.To.Kind == "Service" {
		return blockedService(s, t)
	}
	from, fromIs := get[*corev1.Pod](s, t.From.Namespace, t.From.Name)
	to, toIs := get[*corev1.Pod](s, t.To.Namespace, t.To.Name)
	var out []Finding
	for ref, presence := range map[Ref]Presence{t.From: fromIs, t.To: toIs} {
		if presence == Absent {
			out = append(out, absent(s, ref))
		}
	}
	if fromIs != Found || toIs != Found {
		slices.SortFunc(out, func(a, b Finding) int { return compareRefs(a.Subject, b.Subject) })
		return out
	}
	if f := direction(s, t, from, to, networkingv1.PolicyTypeEgress); f != nil {
		out = append(out, *f)
	}
	if f := direction(s, t, to, from, networkingv1.PolicyTypeIngress); f != nil {
		out = append(out, *f)
	}
	return out
}

// blockedService explains a connection to a Service by its faults, or by the first of its pods that
// does not get it.
func blockedService(s *Snapshot, t Traffic) []Finding {
	if _, presence := get[*corev1.Pod](s, t.From.Namespace, t.From.Name); presence == Absent {
		return []Finding{absent(s, t.From)}
	}
	svc, presence := get[*corev1.Service](s, t.To.Namespace, t.To.Name)
	switch presence {
	case Unknown:
		return nil
	case Absent:
		return []Finding{absent(s, t.To)}
	}
	i := slices.IndexFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool {
		return p.Port == t.Port && cmp.Or(p.Protocol, corev1.ProtocolTCP) == t.Protocol
	})
	if i < 0 {
		var known []string
		for _, p := range svc.Spec.Ports {
			known = append(known, fmt.Sprintf("%s %d", cmp.Or(p.Protocol, corev1.ProtocolTCP), p.Port))
		}
		return []Finding{{Cause: causeServicePort, Subject: t.To, Problem: fmt.Sprintf("it has no %s port %d.", t.Protocol, t.Port), Evidence: []Fact{{Text: "its ports: " + names(known)}}, Remedy: "Use one of its ports, or add this one."}}
	}
	if found := serviceEndpoints(s, svc); len(found) > 0 {
		return []Finding{{Cause: causeNoReceiver, Subject: t.To, Problem: "it does not lead to a pod.", links: []Link{{Object: t.To}}}}
	}
	target := svc.Spec.Ports[i].TargetPort
	pods, _ := list[*corev1.Pod](s, t.To.Namespace)
	for _, p := range pods {
		if len(svc.Spec.Selector) == 0 || !podReady(p) || podOver(p) || !labels.SelectorFromSet(svc.Spec.Selector).Matches(labels.Set(p.Labels)) {
			continue
		}
		if found := Blocked(s, Traffic{From: t.From, To: refTo(p), Port: targetPort(p, target, t.Port), Protocol: t.Protocol}); len(found) > 0 {
			return found
		}
	}
	return nil
}

// targetPort returns the port of a pod to which a port of a Service leads.
func targetPort(p *corev1.Pod, target intstr.IntOrString, port int32) int32 {
	if target.Type == intstr.String {
		for _, c := range p.Spec.Containers {
			for _, have := range c.Ports {
				if have.Name == target.StrVal {
					return have.ContainerPort
				}
			}
		}
	}
	return cmp.Or(target.IntVal, port)
}

// direction judges the policies that select one of the pods, for one direction.
func direction(s *Snapshot, t Traffic, pod, peer *corev1.Pod, kind networkingv1.PolicyType) *Finding {
	policies, ok := list[*networkingv1.NetworkPolicy](s, pod.Namespace)
	if !ok {
		return nil
	}
	var isolating []*networkingv1.NetworkPolicy
	for _, p := range policies {
		if !slices.Contains(p.Spec.PolicyTypes, kind) || !selects(&p.Spec.PodSelector, pod.Labels) {
			continue
		}
		if policyAllows(s, p, t, peer, kind) {
			return nil
		}
		isolating = append(isolating, p)
	}
	if len(isolating) == 0 {
		return nil
	}
	var list []string
	f := &Finding{Subject: refTo(pod)}
	for _, p := range isolating {
		ref := refTo(p)
		list = append(list, ref.String())
		f.Evidence = append(f.Evidence, Fact{Text: fmt.Sprintf("%s selects it for %s, and %s", ref, kind, ruleText(p, kind)), Object: &ref})
	}
	port := fmt.Sprintf("%s port %d", t.Protocol, t.Port)
	if kind == networkingv1.PolicyTypeEgress {
		f.Cause, f.Problem = causeEgress, fmt.Sprintf("%s isolates it: it may not reach %s at %s.", names(list), refTo(peer), port)
		f.Remedy = fmt.Sprintf("Add an egress rule to %s with a podSelector that matches %s.", list[0], refTo(peer))
		return f
	}
	f.Cause, f.Problem = causeIngress, fmt.Sprintf("%s isolates it: %s may not reach it at %s.", names(list), refTo(peer), port)
	f.Remedy = fmt.Sprintf("Add an ingress rule to %s with a podSelector that matches %s.", list[0], refTo(peer))
	return f
}

func ruleText(p *networkingv1.NetworkPolicy, kind networkingv1.PolicyType) string {
	n := len(p.Spec.Ingress)
	if kind == networkingv1.PolicyTypeEgress {
		n = len(p.Spec.Egress)
	}
	if n == 0 {
		return "allows nothing"
	}
	return "none of its " + plural(n, "rule") + " matches"
}

func policyAllows(s *Snapshot, p *networkingv1.NetworkPolicy, t Traffic, peer *corev1.Pod, kind networkingv1.PolicyType) bool {
	to, _ := get[*corev1.Pod](s, t.To.Namespace, t.To.Name)
	if kind == networkingv1.PolicyTypeEgress {
		return slices.ContainsFunc(p.Spec.Egress, func(r networkingv1.NetworkPolicyEgressRule) bool {
			return portAllowed(r.Ports, t, to) && peerAllowed(s, p.Namespace, r.To, peer)
		})
	}
	return slices.ContainsFunc(p.Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool {
		return portAllowed(r.Ports, t, to) && peerAllowed(s, p.Namespace, r.From, peer)
	})
}

func portAllowed(ports []networkingv1.NetworkPolicyPort, t Traffic, to *corev1.Pod) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		if protocol := p.Protocol; protocol != nil && *protocol != t.Protocol || protocol == nil && t.Protocol != corev1.ProtocolTCP {
			return false
		}
		switch {
		case p.Port == nil:
			return true
		case p.Port.Type == intstr.String:
			return slices.ContainsFunc(to.Spec.Containers, func(c corev1.Container) bool {
				return slices.ContainsFunc(c.Ports, func(have corev1.ContainerPort) bool {
					return have.Name == p.Port.StrVal && have.ContainerPort == t.Port
				})
			})
		case p.EndPort != nil:
			return p.Port.IntVal <= t.Port && t.Port <= *p.EndPort
		}
		return p.Port.IntVal == t.Port
	})
}

func peerAllowed(s *Snapshot, namespace string, peers []networkingv1.NetworkPolicyPeer, pod *corev1.Pod) bool {
	return len(peers) == 0 || slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool {
		if p.IPBlock != nil {
			return inBlock(p.IPBlock, pod)
		}
		if p.NamespaceSelector == nil && pod.Namespace != namespace {
			return false
		}
		if p.NamespaceSelector != nil {
			ns, presence := get[*corev1.Namespace](s, "", pod.Namespace)
			if presence != Found || !selects(p.NamespaceSelector, ns.Labels) {
				return false
			}
		}
		return p.PodSelector == nil || selects(p.PodSelector, pod.Labels)
	})
}

func inBlock(b *networkingv1.IPBlock, pod *corev1.Pod) bool {
	address, err := netip.ParseAddr(pod.Status.PodIP)
	block, blockErr := netip.ParsePrefix(b.CIDR)
	if err != nil || blockErr != nil || !block.Contains(address) {
		return false
	}
	return !slices.ContainsFunc(b.Except, func(e string) bool {
		except, err := netip.ParsePrefix(e)
		return err == nil && except.Contains(address)
	})
}
