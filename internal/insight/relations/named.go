package relations

import corev1 "k8s.io/api/core/v1"

// Mention is a Service that a setting of a pod names.
type Mention struct {
	Service  Object
	Evidence string // such as "container api env STORE_URL"
}

// Named returns the Services that the command, the arguments and the environment of a pod name,
// sorted. Services are those that may be named, of any namespace.
func Named(of Object, spec *corev1.PodSpec, services []*corev1.Service) (out []Mention) {
	index := &serviceIndex{map[Object][]ID{}, map[Object]map[string]bool{}, map[Object]string{}}
	for _, s := range services {
		index.add(s)
	}
	b := newBuilder(&Objects{})
	for at := range index.byName {
		index.byName[at] = []ID{{at.Namespace, at.Name}}
	}
	b.texts(ID{Name: "pod"}, &workload{object: of, spec: spec}, index)
	for _, r := range b.graph().Relations {
		for _, evidence := range r.Evidence {
			out = append(out, Mention{Object{"Service", r.To.Namespace, r.To.Name}, evidence})
		}
	}
	return out
}
