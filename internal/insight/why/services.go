package why

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Causes of Services and Ingresses that lead nowhere.
const (
	causeSelectsNothing = "service-selects-nothing"
	causeScaledToZero   = "service-scaled-to-zero"
	causePodsNotReady   = "service-pods-not-ready"
	causePortName       = "service-port-name"
	causePortNumber     = "service-port-number"
	causeNoSlices       = "service-without-endpoints"
	causeLoadBalancer   = "service-load-balancer-pending"
	causeExternalName   = "service-external-name"
	causeIngressNoClass = "ingress-no-class"
	causeIngressClass   = "ingress-class"
	causeIngressBackend = "ingress-backend"
	causeIngressPort    = "ingress-backend-port"
	causeIngressTLS     = "ingress-tls-secret"
)

func selects(selector *metav1.LabelSelector, set map[string]string) bool {
	compiled, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && compiled.Matches(labels.Set(set))
}

// serviceEndpoints explains a Service without usable endpoints.
func serviceEndpoints(s *Snapshot, svc *corev1.Service) []Finding {
	switch {
	case svc.Spec.Type == corev1.ServiceTypeExternalName:
		if !strings.Contains(svc.Spec.ExternalName, ".") {
			return one(causeExternalName, "it is an alias of "+svc.Spec.ExternalName+", which is not a full domain name.", "Set spec.externalName to a domain name such as db.example.com.")
		}
		return nil
	case len(svc.Spec.Selector) == 0:
		return selectorless(s, svc)
	}
	pods, ok := list[*corev1.Pod](s, svc.Namespace)
	if !ok {
		return nil
	}
	var selected, ready []*corev1.Pod
	for _, p := range pods {
		if !podOver(p) && p.DeletionTimestamp == nil && labels.SelectorFromSet(svc.Spec.Selector).Matches(labels.Set(p.Labels)) {
			selected = append(selected, p)
			if podReady(p) {
				ready = append(ready, p)
			}
		}
	}
	switch {
	case len(selected) == 0:
		return selectsNothing(s, svc, pods)
	case len(ready) == 0 && !svc.Spec.PublishNotReadyAddresses:
		f := Finding{Cause: causePodsNotReady, Problem: fmt.Sprintf("none of its %s is ready: it has no endpoints.", plural(len(selected), "pod"))}
		for _, p := range selected {
			f.links = append(f.links, Link{Object: refTo(p)})
		}
		return []Finding{f}
	}
	return targetPorts(svc, ready)
}

func selectsNothing(s *Snapshot, svc *corev1.Service, pods []*corev1.Pod) []Finding {
	selector := labels.SelectorFromSet(svc.Spec.Selector)
	if owner, ok := templateOwner(s, svc.Namespace, selector); ok {
		f := linked(causeScaledToZero, "its selector matches the pods of "+owner.ref.String()+", which has none.", Link{Object: owner.ref})
		if owner.replicas == 0 {
			f.links, f.Problem = nil, "its selector matches the pods of "+owner.ref.String()+", which is scaled to 0."
			f.Remedy = fmt.Sprintf("kubectl scale %s -n %s --replicas=1", owner.ref, svc.Namespace)
		}
		return []Finding{f}
	}
	f := Finding{Cause: causeSelectsNothing, Problem: "its selector " + selector.String() + " matches no pod: it has no endpoints.", Remedy: "Correct spec.selector, or the labels of the pods."}
	if near, ok := nearestPod(svc.Spec.Selector, pods); ok {
		ref := refTo(near)
		f.Evidence = []Fact{{Text: "the nearest is " + ref.String() + " with the labels " + labels.Set(near.Labels).String(), Object: &ref}}
	}
	return []Finding{f}
}

// nearestPod returns the pod with the most labels in common with a selector.
func nearestPod(selector map[string]string, pods []*corev1.Pod) (best *corev1.Pod, ok bool) {
	most := 0
	for _, p := range pods {
		n := 0
		for key, value := range selector {
			if is, has := p.Labels[key]; has {
				n++
				if is == value {
					n++
				}
			}
		}
		if n > most {
			most, best = n, p
		}
	}
	return best, best != nil
}

func selectorless(s *Snapshot, svc *corev1.Service) []Finding {
	slicesOf, ok := list[*discoveryv1.EndpointSlice](s, svc.Namespace)
	if !ok {
		return nil
	}
	for _, slice := range slicesOf {
		if slice.Labels[discoveryv1.LabelServiceName] == svc.Name && len(slice.Endpoints) > 0 {
			return nil
		}
	}
	return one(causeNoSlices, "it has no selector, and there are no EndpointSlices for it.", "Set spec.selector, or create an EndpointSlice with the label kubernetes.io/service-name="+svc.Name+".")
}

// targetPorts checks that ready pods have the ports that the Service names.
func targetPorts(svc *corev1.Service, ready []*corev1.Pod) (out []Finding) {
	for _, port := range svc.Spec.Ports {
		var known []string
		has, declared := false, false
		for _, p := range ready {
			for _, c := range p.Spec.Containers {
				for _, have := range c.Ports {
					declared = true
					known = append(known, portText(have))
					has = has || port.TargetPort.Type == intstr.String && have.Name == port.TargetPort.StrVal || port.TargetPort.Type == intstr.Int && (have.ContainerPort == port.TargetPort.IntVal || port.TargetPort.IntVal == 0 && have.ContainerPort == port.Port)
				}
			}
		}
		slices.Sort(known)
		known = slices.Compact(known)
		fact := []Fact{{Text: "ports of its pods: " + names(known)}}
		switch {
		case has || len(ready) == 0:
		case port.TargetPort.Type == intstr.String:
			out = append(out, Finding{Cause: causePortName, Problem: fmt.Sprintf("its port %d leads to the pods' port %q, and no pod has a port of this name.", port.Port, port.TargetPort.StrVal), Evidence: fact, Remedy: "Correct targetPort, or name the container's port."})
		case declared: // containers need not declare the ports on which they listen
			out = append(out, Finding{Cause: causePortNumber, Problem: fmt.Sprintf("its port %d leads to port %s of the pods, which no container declares.", port.Port, port.TargetPort.String()), Evidence: fact, Remedy: "Correct targetPort, unless the program listens on a port that it does not declare."})
		}
	}
	return out
}

func portText(p corev1.ContainerPort) string {
	if p.Name == "" {
		return fmt.Sprint(p.ContainerPort)
	}
	return fmt.Sprintf("%s (%d)", p.Name, p.ContainerPort)
}

func podReady(p *corev1.Pod) bool {
	c := podCondition(p, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// serviceAddress explains a load balancer that has no address.
func serviceAddress(s *Snapshot, svc *corev1.Service) []Finding {
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer || len(svc.Status.LoadBalancer.Ingress) > 0 {
		return nil
	}
	f := one(causeLoadBalancer, "it waits for an external address, and nothing has given it one.", "Install a load balancer controller, give it free addresses, or use type NodePort.")
	if e := s.event(refTo(svc), "SyncLoadBalancerFailed", "AllocationFailed", "NoAddress"); e != nil {
		f[0].Evidence = []Fact{{Text: "event " + e.Reason + ": " + oneLine(e.Message)}}
	}
	if class := svc.Spec.LoadBalancerClass; class != nil {
		f[0].Evidence = append(f[0].Evidence, Fact{Text: "it asks for the load balancer class " + *class})
	}
	return f
}

// ingress explains an Ingress that leads nowhere.
func ingress(s *Snapshot, i *networkingv1.Ingress) []Finding {
	out := ingressClass(s, i)
	var backends []networkingv1.IngressBackend
	if i.Spec.DefaultBackend != nil {
		backends = append(backends, *i.Spec.DefaultBackend)
	}
	for _, rule := range i.Spec.Rules {
		if rule.HTTP == nil {
			continue
		}
		for _, p := range rule.HTTP.Paths {
			backends = append(backends, p.Backend)
		}
	}
	seen := map[string]bool{}
	for _, b := range backends {
		if b.Service == nil || seen[b.Service.Name+b.Service.Port.Name+fmt.Sprint(b.Service.Port.Number)] {
			continue
		}
		seen[b.Service.Name+b.Service.Port.Name+fmt.Sprint(b.Service.Port.Number)] = true
		out = append(out, ingressBackend(s, i.Namespace, b.Service)...)
	}
	for _, t := range i.Spec.TLS {
		ref := Ref{"Secret", i.Namespace, t.SecretName}
		secret, presence := get[*corev1.Secret](s, i.Namespace, t.SecretName)
		switch {
		case t.SecretName == "":
		case presence == Absent:
			out = append(out, linked(causeIngressTLS, "its certificate is in "+ref.String()+", which does not exist.", Link{Object: ref}))
		case presence == Found && (len(secret.Data[corev1.TLSCertKey]) == 0 || len(secret.Data[corev1.TLSPrivateKeyKey]) == 0):
			out = append(out, Finding{Cause: causeIngressTLS, Problem: "its certificate is in " + ref.String() + ", which has no tls.crt or no tls.key.", Remedy: "Create it with kubectl create secret tls."})
		case presence == Found:
			out = append(out, ingressCertificate(s, secret, ingressHosts(i, t.Hosts))...)
		}
	}
	return out
}

func ingressClass(s *Snapshot, i *networkingv1.Ingress) []Finding {
	classes, ok := list[*networkingv1.IngressClass](s, "")
	if !ok {
		return nil
	}
	name := i.Annotations["kubernetes.io/ingress.class"]
	if i.Spec.IngressClassName != nil {
		name = *i.Spec.IngressClassName
	} else if name != "" {
		return nil // controllers know their own values of the old annotation
	}
	var known []string
	for _, c := range classes {
		known = append(known, c.Name)
		if name == "" && c.Annotations[networkingv1.AnnotationIsDefaultIngressClass] == "true" {
			return nil
		}
	}
	switch {
	case name == "":
		return []Finding{{Cause: causeIngressNoClass, Problem: "it names no IngressClass, and none is the default: no controller serves it.", Evidence: []Fact{{Text: "classes: " + names(known)}}, Remedy: "Set spec.ingressClassName."}}
	case !slices.Contains(known, name):
		return []Finding{linked(causeIngressClass, "its IngressClass "+name+" does not exist: no controller serves it.", Link{Object: Ref{"IngressClass", "", name}})}
	}
	return nil
}

func ingressBackend(s *Snapshot, namespace string, b *networkingv1.IngressServiceBackend) []Finding {
	ref := Ref{"Service", namespace, b.Name}
	svc, presence := get[*corev1.Service](s, namespace, b.Name)
	switch presence {
	case Unknown:
		return nil
	case Absent:
		return []Finding{linked(causeIngressBackend, "it leads to "+ref.String()+", which does not exist.", Link{Object: ref})}
	}
	var known []string
	for _, p := range svc.Spec.Ports {
		known = append(known, fmt.Sprintf("%s (%d)", p.Name, p.Port))
		if b.Port.Name != "" && p.Name == b.Port.Name || b.Port.Name == "" && p.Port == b.Port.Number {
			return linkedIfBroken(s, ref)
		}
	}
	port := b.Port.Name
	if port == "" {
		port = fmt.Sprint(b.Port.Number)
	}
	return []Finding{{Cause: causeIngressPort, Problem: "it leads to port " + port + " of " + ref.String() + ", which has no such port.", Evidence: []Fact{{Text: "its ports: " + names(known), Object: &ref}}, Remedy: "Correct the backend's port."}}
}

// linkedIfBroken links to the Service only if it has findings: a healthy backend is none.
func linkedIfBroken(s *Snapshot, ref Ref) []Finding {
	svc, presence := get[*corev1.Service](s, ref.Namespace, ref.Name)
	if presence != Found || len(serviceEndpoints(s, svc)) == 0 {
		return nil
	}
	return []Finding{linked(causeIngressBackend, "it leads to "+ref.String()+", which does not work.", Link{Object: ref})}
}

// ingressHosts returns the hosts that a certificate must cover: those of its entry, or else all.
func ingressHosts(i *networkingv1.Ingress, hosts []string) []string {
	if len(hosts) > 0 {
		return hosts
	}
	for _, rule := range i.Spec.Rules {
		hosts = append(hosts, rule.Host)
	}
	return hosts
}

// ingressCertificate explains a certificate that browsers do not accept.
func ingressCertificate(s *Snapshot, secret *corev1.Secret, hosts []string) []Finding {
	ref := refTo(secret)
	if pairFlaw(s.Now, secret) != nil {
		f := linked(causeIngressTLS, "its certificate in "+ref.String()+" is not accepted.", Link{Object: ref, Only: ofSecret})
		f.onlyLinked = true
		return []Finding{f}
	}
	if f := hostFlaw(parseCertificates(secret.Data[corev1.TLSCertKey])[0], hosts...); f != nil {
		return []Finding{{Cause: f.cause, Problem: "its certificate in " + ref.String() + " " + f.problem + ".", Remedy: f.remedy, Evidence: certificateFacts(secret)}}
	}
	return nil
}
