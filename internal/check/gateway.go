package check

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const gatewayGroup = "gateway.networking.k8s.io"

// gatewayRoutes are the kinds of the Gateway API with parents and backends.
var gatewayRoutes = []string{"HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute", "UDPRoute"}

// gateway follows references of the Gateway API, whose kinds are custom ones.
func (f *follower) gateway() {
	u, ok := f.object.hub.(*unstructured.Unstructured)
	if !ok || f.object.gvk().Group != gatewayGroup {
		return
	}
	switch kind := f.object.head.Kind; {
	case kind == "Gateway":
		class, _, _ := unstructured.NestedString(u.Object, "spec", "gatewayClassName")
		f.class("spec.gatewayClassName", gatewayGroup, "GatewayClass", class)
		for i, listener := range items(u.Object, "spec", "listeners") {
			for j, ref := range items(listener, "tls", "certificateRefs") {
				f.crossing(fmt.Sprintf("spec.listeners[%d].tls.certificateRefs[%d]", i, j), ref, target{GroupKind: kindOf("", "Secret")})
			}
		}
	case slices.Contains(gatewayRoutes, kind):
		for i, ref := range items(u.Object, "spec", "parentRefs") {
			t := f.reference(ref, target{GroupKind: kindOf(gatewayGroup, "Gateway")})
			path := fmt.Sprintf("spec.parentRefs[%d]", i)
			f.to(path+".name", t)
			f.section(path+".sectionName", ref, t)
		}
		for i, rule := range items(u.Object, "spec", "rules") {
			for j, ref := range items(rule, "backendRefs") {
				path := fmt.Sprintf("spec.rules[%d].backendRefs[%d]", i, j)
				f.backendPort(path, ref, f.crossing(path, ref, target{GroupKind: kindOf("", "Service")}))
			}
		}
	}
}

// items returns the objects of a list in an unstructured object.
func items(from map[string]any, path ...string) (list []map[string]any) {
	values, _, _ := unstructured.NestedFieldNoCopy(from, path...)
	all, _ := values.([]any)
	for _, v := range all {
		m, _ := v.(map[string]any)
		list = append(list, m) // also a broken one, for the index
	}
	return list
}

// reference completes a target by a reference, whose group, kind and namespace have defaults.
func (f *follower) reference(ref map[string]any, t target) target {
	if group, ok := ref["group"].(string); ok {
		t.Group = group
	}
	if kind, ok := ref["kind"].(string); ok {
		t.Kind = kind
	}
	t.name, _ = ref["name"].(string)
	if t.namespace, _ = ref["namespace"].(string); t.namespace == "" {
		t.namespace = f.namespace
	}
	return t
}

// crossing follows a reference that needs a ReferenceGrant if it leads into another namespace.
func (f *follower) crossing(path string, ref map[string]any, t target) target {
	t = f.reference(ref, t)
	f.to(path+".name", t)
	if t.namespace == f.namespace || f.index.objects[t] == nil && !f.Closed || f.granted(t) {
		return t
	}
	severity := Warning
	if f.Closed {
		severity = Error
	}
	f.object.note(severity, path+".namespace", fmt.Sprintf("no ReferenceGrant of the files in namespace %q lets a %s of namespace %q refer to the %s %q",
		t.namespace, f.object.head.Kind, f.namespace, t.Kind, t.name))
	return t
}

// granted reports whether a ReferenceGrant of the files allows a reference.
func (f *follower) granted(t target) bool {
	if !f.index.spend(len(f.index.objects)) {
		return true
	}
	for at, o := range f.index.objects {
		u, ok := o.hub.(*unstructured.Unstructured)
		if !ok || at.Group != gatewayGroup || at.Kind != "ReferenceGrant" || at.namespace != t.namespace {
			continue
		}
		from := slices.ContainsFunc(items(u.Object, "spec", "from"), func(m map[string]any) bool {
			return m["group"] == gatewayGroup && m["kind"] == f.object.head.Kind && m["namespace"] == f.namespace
		})
		to := slices.ContainsFunc(items(u.Object, "spec", "to"), func(m map[string]any) bool {
			name, named := m["name"].(string)
			return m["group"] == t.Group && m["kind"] == t.Kind && (!named || name == "" || name == t.name)
		})
		if from && to {
			return true
		}
	}
	return false
}

// section follows the name of a Gateway's listener.
func (f *follower) section(path string, ref map[string]any, t target) {
	want, _ := ref["sectionName"].(string)
	o := f.index.objects[t]
	if want == "" || o == nil || t.Kind != "Gateway" {
		return
	}
	u, ok := o.hub.(*unstructured.Unstructured)
	if !ok {
		return
	}
	var names []string
	for _, listener := range items(u.Object, "spec", "listeners") {
		name, _ := listener["name"].(string)
		names = append(names, name)
	}
	if !slices.Contains(names, want) {
		f.missing(path, fmt.Sprintf("the Gateway %q has no listener %q; it has %s", t.name, want, listed(names)), nearest(want, names))
	}
}

// backendPort follows a backend to the port of its Service.
func (f *follower) backendPort(path string, ref map[string]any, t target) {
	o := f.index.objects[t]
	if o == nil {
		return
	}
	s, ok := o.hub.(*corev1.Service)
	if !ok || s.Spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	port, ok := ref["port"].(int64)
	if !ok {
		f.missing(path, fmt.Sprintf("required: the port of the Service %q", t.name), nil)
		return
	}
	var ports []string
	for _, p := range s.Spec.Ports {
		if int64(p.Port) == port {
			return
		}
		ports = append(ports, fmt.Sprint(p.Port))
	}
	f.missing(path+".port", fmt.Sprintf("the Service %q has no port %d; it has %s", t.name, port, listed(ports)), nil)
}
