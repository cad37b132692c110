package mixin

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// series is one sample, with its labels in pairs of names and values.
type series struct {
	name   string
	value  float64
	labels []string
}

// object is the part of an API object that the series of kube-state-metrics need.
type object struct {
	Kind     string
	Metadata struct {
		Name, Namespace string
		OwnerReferences []struct{ Kind, Name string }
	}
	Spec struct {
		NodeName    string
		HostNetwork bool
		Containers  []struct {
			Name      string
			Resources map[string]json.RawMessage
		}
	}
	Status struct {
		Phase, PodIP string
		Allocatable  map[string]string
		Capacity     map[string]string
	}
}

// states are the series of kube-state-metrics that queries join with, made from the output of
// `kubectl get pods,replicasets,nodes -A -o json`.
func states(raw []byte) ([]series, error) {
	var list struct{ Items []object }
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, err
	}
	var out []series
	add := func(name string, value float64, labels ...string) {
		out = append(out, series{name, value, labels})
	}
	for _, o := range list.Items {
		m, owner, ownerKind := o.Metadata, "", ""
		if len(m.OwnerReferences) > 0 {
			owner, ownerKind = m.OwnerReferences[0].Name, m.OwnerReferences[0].Kind
		}
		switch o.Kind {
		case "Pod":
			of := []string{"namespace", m.Namespace, "pod", m.Name}
			add("kube_pod_info", 1, append(of, "node", o.Spec.NodeName, "pod_ip", o.Status.PodIP, "host_network", strconv.FormatBool(o.Spec.HostNetwork))...)
			add("kube_pod_owner", 1, append(of, "owner_kind", ownerKind, "owner_name", owner)...)
			add("kube_pod_status_phase", 1, append(of, "phase", o.Status.Phase)...)
			for _, c := range o.Spec.Containers {
				for _, bound := range []string{"requests", "limits"} {
					var amounts map[string]string
					if raw, ok := c.Resources[bound]; ok {
						if err := json.Unmarshal(raw, &amounts); err != nil {
							return nil, fmt.Errorf("%s of pod %s: %w", bound, m.Name, err)
						}
					}
					for resource, amount := range amounts {
						v, err := quantity(amount)
						if err != nil {
							return nil, err
						}
						add("kube_pod_container_resource_"+bound, v, append(of, "container", c.Name, "node", o.Spec.NodeName, "resource", resource)...)
					}
				}
			}
		case "ReplicaSet":
			add("kube_replicaset_owner", 1, "namespace", m.Namespace, "replicaset", m.Name, "owner_kind", ownerKind, "owner_name", owner)
		case "Node":
			for _, resource := range []string{"cpu", "memory"} {
				v, err := quantity(o.Status.Allocatable[resource])
				if err != nil {
					return nil, err
				}
				add("kube_node_status_allocatable", v, "node", m.Name, "resource", resource)
			}
		}
	}
	return out, nil
}

// units are those suffixes of quantities that the test's objects have.
var units = map[byte]float64{'m': 1e-3, 'k': 1e3, 'K': 1 << 10, 'M': 1 << 20, 'G': 1 << 30}

// quantity reads 250m, 64Mi or 2.
func quantity(text string) (float64, error) {
	number, scale := text, 1.0
	if n := len(number); n > 1 && number[n-1] == 'i' {
		number = number[:n-1]
	}
	if n := len(number); n > 0 && units[number[n-1]] > 0 {
		scale, number = units[number[n-1]], number[:n-1]
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0, fmt.Errorf("quantity %q: %w", text, err)
	}
	return v * scale, nil
}
