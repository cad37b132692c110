package relations

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/knarr-project/knarr/internal/architecture"
)

// serviceIndex finds Services by name, and the components behind each.
type serviceIndex struct {
	byName map[Object][]ID // the kind is Service
	ports  map[Object]map[string]bool
	hosts  map[Object]string // of Services of the type ExternalName
}

// add records a Service without components behind it.
func (x *serviceIndex) add(s *corev1.Service) Object {
	at := Object{"Service", s.Namespace, s.Name}
	x.byName[at], x.ports[at] = nil, map[string]bool{}
	for _, p := range s.Spec.Ports {
		x.ports[at][fmt.Sprint(p.Port)] = true
	}
	return at
}

// services records the Services in front of the components.
func (b *builder) services(o *Objects, all []workload) *serviceIndex {
	index := &serviceIndex{map[Object][]ID{}, map[Object]map[string]bool{}, map[Object]string{}}
	for i := range o.Services {
		s := &o.Services[i]
		at := index.add(s)
		offer := Offer{Name: s.Name, Type: string(s.Spec.Type)}
		for _, p := range s.Spec.Ports {
			offer.Ports = append(offer.Ports, fmt.Sprintf("%d/%s", p.Port, p.Protocol))
		}
		through := "Service " + s.Namespace + "/" + s.Name
		if s.Spec.Type == corev1.ServiceTypeExternalName {
			index.byName[at] = []ID{Outside}
			index.hosts[at] = s.Spec.ExternalName
			b.component(Outside, "")
			continue
		}
		selector := labels.SelectorFromSet(s.Spec.Selector)
		seen := map[ID]bool{}
		for i := range all {
			w := &all[i]
			if len(s.Spec.Selector) == 0 || w.object.Namespace != s.Namespace || !selector.Matches(labels.Set(w.labels)) {
				continue
			}
			id, system := b.id(w)
			if seen[id] {
				continue
			}
			seen[id] = true
			c := b.component(id, system)
			c.Services = append(c.Services, offer)
			c.Spec.Offers = append(c.Spec.Offers, offers(s)...)
			index.byName[at] = append(index.byName[at], id)
			if s.Spec.Type == corev1.ServiceTypeLoadBalancer || s.Spec.Type == corev1.ServiceTypeNodePort || len(s.Spec.ExternalIPs) > 0 {
				b.component(Outside, "")
				b.relate(Outside, id, through, Derived, through+" spec.type")
			}
		}
	}
	return index
}

// offers returns what a Component could declare to offer through a Service.
func offers(s *corev1.Service) (all []architecture.Offer) {
	for _, p := range s.Spec.Ports {
		o := architecture.Offer{Name: cmp.Or(p.Name, fmt.Sprintf("port-%d", p.Port)), Port: p.TargetPort, Protocol: string(p.Protocol), Service: s.Name}
		if o.Port == (intstr.IntOrString{}) {
			o.Port = intstr.FromInt32(p.Port)
		}
		all = append(all, o)
	}
	return all
}

// calls derives relations from the names of Services in the settings of pods.
func (b *builder) calls(o *Objects, all []workload, index *serviceIndex) {
	maps := map[Object]*corev1.ConfigMap{}
	for i := range o.ConfigMaps {
		m := &o.ConfigMaps[i]
		maps[Object{"ConfigMap", m.Namespace, m.Name}] = m
	}
	for i := range all {
		w := &all[i]
		from, _ := b.id(w)
		b.texts(from, w, index)
		for _, s := range b.components[from].Settings {
			m := maps[s]
			if m == nil {
				continue
			}
			for key, text := range m.Data {
				b.named(from, s.Namespace, text, key, fmt.Sprintf("ConfigMap %s data.%s", s.Name, key), index)
			}
		}
	}
}

// texts looks into the command, the arguments and the environment of a workload's containers.
func (b *builder) texts(from ID, w *workload, index *serviceIndex) {
	for _, c := range containers(w.spec) {
		where := fmt.Sprintf("%s %s container %s", w.object.Kind, w.object.Name, c.Name)
		before := ""
		for _, text := range append(append([]string{}, c.Command...), c.Args...) {
			flag, value, ok := strings.Cut(text, "=")
			if !ok {
				flag, value = before, text
			}
			b.named(from, w.object.Namespace, value, flag, where+" args", index)
			before = text
		}
		for _, e := range c.Env {
			b.named(from, w.object.Namespace, e.Value, e.Name, where+" env "+e.Name, index)
		}
	}
}

// maxText is the most bytes of one setting that are searched.
const maxText = 256 << 10

// named relates a component to the Services that the text of a setting names.
func (b *builder) named(from ID, namespace, text, setting, evidence string, index *serviceIndex) {
	if len(text) > maxText {
		text = text[:maxText]
	}
	for _, h := range hosts(text) {
		if h.alone {
			h.sure = meansHost(setting, h.name)
		}
		at, ok := index.find(h, namespace)
		if !ok {
			continue
		}
		for _, to := range index.byName[at] {
			f := b.relate(from, to, "Service "+at.Namespace+"/"+at.Name, Derived, evidence)
			if host := index.hosts[at]; host != "" {
				f.addresses = architecture.MergeAddresses(f.addresses, []string{host})
			}
		}
	}
}

// host is a name in a text, and what speaks for a host.
type host struct {
	name string
	port string // after a colon, or ""
	// sure means that the name stands where only a host does: after // or @.
	sure bool
	// alone means that the name is the whole text.
	alone bool
}

// hostWords are parts of the names of settings whose value is a host.
var hostWords = []string{"host", "addr", "url", "uri", "server", "endpoint", "service", "broker", "upstream"}

// meansHost reports whether a setting's name says that its value is a host: by a usual word, or
// since it has the host's own name.
func meansHost(setting, name string) bool {
	setting = strings.ToLower(setting)
	for _, word := range hostWords {
		if strings.Contains(setting, word) {
			return true
		}
	}
	first, _, _ := strings.Cut(name, ".")
	plain := strings.NewReplacer("-", "", "_", "")
	return strings.Contains(plain.Replace(setting), plain.Replace(first))
}

// hosts returns the names in a text that may be hosts.
func hosts(text string) []host {
	var out []host
	for i := 0; i < len(text); {
		if !nameByte(text[i]) {
			i++
			continue
		}
		end := i
		for end < len(text) && nameByte(text[end]) {
			end++
		}
		h := host{name: strings.TrimSuffix(strings.ToLower(text[i:end]), ".")}
		h.sure = strings.HasSuffix(text[:i], "//") || strings.HasSuffix(text[:i], "@")
		h.alone = i == 0 && end == len(text)
		if end < len(text) && text[end] == ':' {
			to := end + 1
			for to < len(text) && text[to] >= '0' && text[to] <= '9' {
				to++
			}
			h.port = text[end+1 : to]
		}
		if len(h.name) <= 253 && h.name != "" {
			out = append(out, h)
		}
		i = end
	}
	return out
}

func nameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.'
}

// find returns the Service that a host in a pod of the namespace means. A pod of a StatefulSet has
// a label before the Service. A name without its namespace needs a sign: its place in the text, or
// a port of the Service.
func (x *serviceIndex) find(h host, namespace string) (Object, bool) {
	parts := strings.Split(h.name, ".")
	n := len(parts)
	known := func(namespace, name string) (Object, bool) {
		at := Object{"Service", namespace, name}
		_, ok := x.byName[at]
		return at, ok
	}
	if n >= 2 && (n == 2 || parts[2] == "svc") { // service.namespace
		if at, ok := known(parts[1], parts[0]); ok {
			return at, true
		}
	}
	if n >= 3 && (n == 3 || parts[3] == "svc") { // pod.service.namespace
		if at, ok := known(parts[2], parts[1]); ok {
			return at, true
		}
	}
	if n <= 2 { // service, or pod.service
		at, ok := known(namespace, parts[n-1])
		return at, ok && (h.sure || x.ports[at][h.port])
	}
	return Object{}, false
}

// entries relates the outside to the Services of Ingresses and routes.
func (b *builder) entries(o *Objects, index *serviceIndex) {
	for _, e := range o.Ingresses {
		for _, s := range e.Backends {
			for _, to := range index.byName[s] {
				b.component(Outside, "")
				evidence := e.Object.String()
				if len(e.Hosts) > 0 {
					evidence += " " + strings.Join(e.Hosts, ", ")
				}
				b.relate(Outside, to, "Service "+s.Namespace+"/"+s.Name, Derived, evidence)
			}
		}
	}
}
