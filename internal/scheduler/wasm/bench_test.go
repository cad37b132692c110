package wasm

import (
	"fmt"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/scheduler"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
	"github.com/knarr-project/knarr/internal/scheduler/plugins"
)

// compiledIn is examples/scheduler-plugin as a plugin in Go.
type compiledIn struct{}

func (compiledIn) Name() string { return "compiledIn" }

func (compiledIn) Filter(_ framework.State, pod *framework.PodInfo, node *framework.NodeInfo) *framework.Status {
	if disk := pod.Pod.Annotations["example.com/disk"]; disk != "" && node.Node.Labels["example.com/disk"] != disk {
		return framework.RefuseAlways("node(s) had another disk")
	}
	return nil
}

func (compiledIn) Score(_ framework.State, _ *framework.PodInfo, node *framework.NodeInfo) (int64, *framework.Status) {
	n, err := strconv.Atoi(node.Node.Labels["example.com/points"])
	if err != nil || n < 0 {
		return 0, nil
	}
	return min(int64(n), 100), nil
}

// compiledInKept is the same with a key, as a plugin in Go would have.
type compiledInKept struct{ compiledIn }

func (compiledInKept) AppendKey(key []byte, pod *framework.PodInfo, _ *framework.Snapshot) []byte {
	return append(key, pod.Pod.Annotations["example.com/disk"]...)
}

// benchNode is a node with the fields that a usual node has.
func benchNode(i int) *corev1.Node {
	full := corev1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("32Gi"), "pods": resource.MustParse("110"), "ephemeral-storage": resource.MustParse("100Gi")}
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("node", i), Labels: map[string]string{
			"kubernetes.io/hostname": fmt.Sprint("node", i), "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "topology.kubernetes.io/zone": fmt.Sprint("zone", i%3),
			"example.com/disk": []string{"ssd", "hdd"}[i%2], "example.com/points": fmt.Sprint(i % 100),
		}, Annotations: map[string]string{"node.alpha.kubernetes.io/ttl": "0", "volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
		Spec: corev1.NodeSpec{PodCIDR: "10.42.0.0/24", PodCIDRs: []string{"10.42.0.0/24"}},
		Status: corev1.NodeStatus{Capacity: full, Allocatable: full, Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
			NodeInfo: corev1.NodeSystemInfo{KernelVersion: "6.1.0", KubeletVersion: "v1.36.3", OperatingSystem: "linux", Architecture: "amd64"}},
	}
	for _, c := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: c, Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"})
	}
	return n
}

// BenchmarkDecide compares decisions with the default profile and a filter and score plugin: none,
// compiled in, and as a guest. The guest without versions reads the node in each call. Half of the
// nodes pass the plugin's filter.
func BenchmarkDecide(b *testing.B) {
	for _, count := range []int{100, 1000, 5000} {
		var infos []*framework.NodeInfo
		for i := range count {
			infos = append(infos, framework.NewNodeInfo(benchNode(i)))
		}
		snapshot := framework.NewSnapshot(infos, nil, nil)
		pod := framework.NewPodInfo(&corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod", Annotations: map[string]string{"example.com/disk": "ssd"}},
			Spec: corev1.PodSpec{SchedulerName: corev1.DefaultSchedulerName, Containers: []corev1.Container{{Name: "c", Image: "image", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")}}}}},
		})
		for _, kind := range []string{"none", "compiled in", "guest", "guest without versions", "guest that keeps answers", "compiled in, kept"} {
			b.Run(fmt.Sprintf("%d nodes/%s", count, kind), func(b *testing.B) {
				profile := plugins.Default(corev1.DefaultSchedulerName)
				switch kind {
				case "compiled in":
					profile.Filters = append(profile.Filters, compiledIn{})
					profile.Scores = append(profile.Scores, framework.Weighted{ScorePlugin: compiledIn{}, Weight: 1})
				case "guest":
					load(b, built(b), Settings{}).AddTo(&profile, 1)
				case "guest without versions":
					load(b, unversioned(built(b)), Settings{}).AddTo(&profile, 1)
				case "guest that keeps answers":
					load(b, built(b), Settings{Local: true}).AddTo(&profile, 1)
				case "compiled in, kept":
					profile.Filters = append(profile.Filters, compiledInKept{})
					profile.Scores = append(profile.Scores, framework.Weighted{ScorePlugin: compiledInKept{}, Weight: 1})
				}
				classes := scheduler.NewClasses()
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					d := scheduler.Decide(scheduler.Input{Snapshot: snapshot, Pod: pod, Profile: &profile, Start: i % count, Classes: classes})
					if d.Node == "" {
						b.Fatal(d.Message())
					}
					d.State.End()
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "decisions/s")
			})
		}
	}
}
