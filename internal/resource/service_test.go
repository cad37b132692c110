package resource

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestANodePortStaysWithTheNameOfItsPort(t *testing.T) {
	service := func(ports string) *corev1.Service {
		obj, _ := read(t, "apiVersion: v1\nkind: Service\nspec: {type: NodePort, ports: "+ports+"}\n")
		return obj.(*corev1.Service)
	}
	cases := []struct {
		name, was, is string
		want          []int32
	}{
		{"the port has another number", "[{name: a, port: 80, nodePort: 30100}]", "[{name: a, port: 81}]", []int32{30100}},
		{"the port has another protocol", "[{port: 80, nodePort: 30100}]", "[{port: 80, protocol: UDP}]", []int32{30100}},
		{"the port has another name", "[{name: a, port: 80, nodePort: 30100}]", "[{name: b, port: 80}]", []int32{0}},
		{"names change places", "[{name: a, port: 80, nodePort: 30100}, {name: b, port: 81, nodePort: 30101}]", "[{name: b, port: 80}, {name: a, port: 81}]", []int32{30101, 30100}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := service(c.was), service(c.is)
			serviceStrategy().PrepareUpdate(s, old)
			for i, p := range s.Spec.Ports {
				if p.NodePort != c.want[i] {
					t.Errorf("port %d has the node port %d, want %d", i, p.NodePort, c.want[i])
				}
			}
		})
	}
}

// Kubernetes before 1.20 stored a single address without the list.
func TestAServiceOfOldKeepsTheAddressThatItHas(t *testing.T) {
	for name, spec := range map[string]string{"who sends it back": "{clusterIP: 10.0.0.11}", "who leaves it out": "{}"} {
		t.Run(name, func(t *testing.T) {
			was, _ := read(t, "apiVersion: v1\nkind: Service\nspec: {clusterIP: 10.0.0.11}\n")
			is, _ := read(t, "apiVersion: v1\nkind: Service\nspec: "+spec+"\n")
			old, s := was.(*corev1.Service), is.(*corev1.Service)
			serviceStrategy().PrepareUpdate(s, old)
			if s.Spec.ClusterIP != "10.0.0.11" || len(s.Spec.ClusterIPs) != 1 || s.Spec.ClusterIPs[0] != "10.0.0.11" {
				t.Errorf("it has %q and %q", s.Spec.ClusterIP, s.Spec.ClusterIPs)
			}
			if len(old.Spec.ClusterIPs) != 0 {
				t.Errorf("the object that was there, which others read, has %q now", old.Spec.ClusterIPs)
			}
		})
	}
}

func TestANameElsewhereHasNoTrafficPolicy(t *testing.T) {
	for policy, want := range map[string]bool{"Local": false, "Cluster": false, "x": true} {
		obj, s := read(t, "apiVersion: v1\nkind: Service\nspec: {type: ExternalName, externalName: a.example, internalTrafficPolicy: "+policy+"}\n")
		s.PrepareCreate(obj)
		if got := obj.(*corev1.Service).Spec.InternalTrafficPolicy != nil; got != want {
			t.Errorf("%s is kept: %v, want %v", policy, got, want)
		}
	}
}

func firstNodePort(obj runtime.Object) int32 { return obj.(*corev1.Service).Spec.Ports[0].NodePort }
