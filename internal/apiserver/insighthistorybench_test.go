package apiserver

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
)

// benchedPod is a pod of a Deployment, without containers' details.
func benchedPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "web-797596b896-", Labels: map[string]string{"app": "web", "pod-template-hash": "797596b896"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx:1.27", Env: []corev1.EnvVar{{Name: "A", Value: "1"}}}}},
	}
}

// BenchmarkWriteWithHistory compares the CPU time of creates, and of updates of status, with the
// history of objects to those without. It takes turns, so that both see the same load of the
// machine.
func BenchmarkWriteWithHistory(b *testing.B) {
	const turn = 300
	on, _ := historyServer(b)
	servers := []*Server{tracedServer(b), on}
	for _, s := range servers { // both follow the store
		if _, err := s.Client(auth.Component("tester")).List(b.Context(), corev1.SchemeGroupVersion.WithResource("pods"), "default", metav1.ListOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	var creating, updating [2]time.Duration
	n := 0
	for ; b.Loop(); n++ {
		for i, s := range servers {
			c := s.Client(auth.Component("tester"))
			pods := make([]*corev1.Pod, turn)
			before := cpuTime(b)
			for k := range pods {
				var err error
				if pods[k], err = client.Create(b.Context(), c, benchedPod()); err != nil {
					b.Fatal(err)
				}
			}
			between := cpuTime(b)
			for k, pod := range pods {
				pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, fmt.Sprintf("10.42.%d.%d", n%250, k%250)
				if _, err := client.UpdateStatus(b.Context(), c, pod); err != nil {
					b.Fatal(err)
				}
			}
			creating[i] += between - before
			updating[i] += cpuTime(b) - between
		}
	}
	b.ReportMetric(0, "ns/op")
	for i, name := range []string{"off", "on"} {
		b.ReportMetric(float64(creating[i].Nanoseconds())/float64(n*turn), "cpu-ns/create-"+name)
		b.ReportMetric(float64(updating[i].Nanoseconds())/float64(n*turn), "cpu-ns/update-"+name)
	}
}

// BenchmarkPatchWithInsight compares the CPU time of merge patches with the causal log and the
// history of objects to that without. Each iteration is a pair of short turns, in changing order,
// and waits for the logs at the end of each. The figures are medians, so that other load of the
// machine counts little; a hundred pairs or more settle them.
func BenchmarkPatchWithInsight(b *testing.B) {
	const turn, objects, gathered = 200, 100, 60 * time.Millisecond
	patches := map[string]func(c client.Interface, name string, i int) error{
		"configmap": func(c client.Interface, name string, i int) error {
			_, err := client.Patch[*corev1.ConfigMap](b.Context(), c, "default", name, types.MergePatchType, fmt.Appendf(nil, `{"data":{"a":"%d"}}`, i))
			return err
		},
		"pod-status": func(c client.Interface, name string, i int) error {
			patch := fmt.Appendf(nil, `{"status":{"phase":"Running","podIP":"10.42.%d.%d"}}`, i/250%250, i%250)
			_, err := client.Patch[*corev1.Pod](b.Context(), c, "default", name, types.MergePatchType, patch, "status")
			return err
		},
	}
	for kind, patch := range patches {
		b.Run(kind, func(b *testing.B) {
			on, _ := historyServer(b)
			servers := []*Server{newTestServer(b, func(c *Config) { c.Security.Authenticator = userHeader{} }), on}
			names := make([][]string, len(servers))
			for i, s := range servers {
				names[i] = patched(b, s, kind, objects)
			}
			var used [2][]float64
			var added []float64
			for n := 0; b.Loop(); n++ {
				var pair [2]float64
				for k := range servers {
					i := (n + k) % len(servers)
					c := servers[i].Client(auth.Component("tester"))
					before := cpuTime(b)
					for k := range turn {
						if err := patch(c, names[i][k%objects], n*turn+k); err != nil {
							b.Fatal(err)
						}
					}
					time.Sleep(gathered)
					pair[i] = float64((cpuTime(b) - before).Nanoseconds()) / turn
					used[i] = append(used[i], pair[i])
				}
				added = append(added, (pair[1]-pair[0])/pair[0]*100)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(median(used[0]), "cpu-ns/patch-off")
			b.ReportMetric(median(used[1]), "cpu-ns/patch-on")
			b.ReportMetric(median(added), "%")
		})
	}
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// patched creates the objects to patch, and opens the caches of their kinds.
func patched(b *testing.B, s *Server, kind string, n int) (names []string) {
	c := s.Client(auth.Component("tester"))
	for _, resource := range []string{"configmaps", "pods"} {
		if _, err := c.List(b.Context(), corev1.SchemeGroupVersion.WithResource(resource), "default", metav1.ListOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	for i := range n {
		var created client.Object
		var err error
		if kind == "configmap" {
			cm := configMap(fmt.Sprint("cm-", i))
			cm.Data["text"] = strings.Repeat("the quick brown fox jumps over the lazy dog; ", 20)
			created, err = client.Create(b.Context(), c, cm)
		} else {
			created, err = client.Create(b.Context(), c, benchedPod())
		}
		if err != nil {
			b.Fatal(err)
		}
		names = append(names, created.GetName())
	}
	return names
}
