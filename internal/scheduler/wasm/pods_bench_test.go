package wasm_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/scheduler"
	"github.com/knarr-project/knarr/internal/scheduler/framework"
	"github.com/knarr-project/knarr/internal/scheduler/wasm"
	"github.com/knarr-project/knarr/knarrtest"
)

// BenchmarkPods measures pods from their create over HTTP until they are bound, as upstream
// measures its extension: with no plugin, with a plugin that is compiled in, and with the same one
// as a guest. The scheduler uses the API over HTTP too. Half of the nodes pass the filter.
func BenchmarkPods(b *testing.B) {
	for _, nodes := range []int{100, 1000} {
		for _, kind := range []string{"none", "compiled in", "compiled in, kept", "guest", "guest without versions", "guest that keeps answers"} {
			b.Run(fmt.Sprintf("%d nodes/%s", nodes, kind), func(b *testing.B) {
				c := knarrtest.Start(b, knarrtest.WithoutScheduler(), knarrtest.WithoutControllers())
				config := c.Config()
				config.QPS, config.ContentType = -1, "application/vnd.kubernetes.protobuf"
				direct := kubernetes.NewForConfigOrDie(config)
				for i := range nodes {
					makeNode(b, direct, i)
				}
				startScheduler(b, c, kind)
				createAndBind(b, direct)
			})
		}
	}
}

// makeNode creates a node without the taint of new nodes.
func makeNode(b *testing.B, c kubernetes.Interface, i int) {
	node, err := c.CoreV1().Nodes().Create(b.Context(), wasm.BenchNode(i), metav1.CreateOptions{})
	if err != nil {
		b.Fatal(err)
	}
	node.Spec.Taints = nil
	node, err = c.CoreV1().Nodes().Update(b.Context(), node, metav1.UpdateOptions{})
	if err == nil {
		room := corev1.ResourceList{"cpu": resource.MustParse("8000"), "memory": resource.MustParse("32Ti"), "pods": resource.MustParse("10000")}
		node.Status.Capacity, node.Status.Allocatable = room, room
		_, err = c.CoreV1().Nodes().UpdateStatus(b.Context(), node, metav1.UpdateOptions{})
	}
	if err != nil {
		b.Fatal(err)
	}
}

// startScheduler runs a scheduler with a kind of plugin until the benchmark ends.
func startScheduler(b *testing.B, c *knarrtest.Cluster, kind string) {
	in, err := client.Remote(c.Config())
	if err != nil {
		b.Fatal(err)
	}
	events := client.NewSeriesRecorder(in, "default-scheduler", "")
	s := scheduler.New(scheduler.Config{Client: in, Events: events})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { events.Run(ctx) })
	running.Go(func() { _ = s.Run(ctx) })
	host, guest := wasm.NewHost(), (*wasm.Guest)(nil)
	b.Cleanup(func() {
		cancel()
		running.Wait()
		if guest != nil {
			guest.Close()
		}
		host.Close()
	})
	add := func(f framework.FilterPlugin, score framework.ScorePlugin) func(*framework.Profile) {
		return func(p *framework.Profile) {
			p.Filters = append(p.Filters, f)
			p.Scores = append(p.Scores, framework.Weighted{ScorePlugin: score, Weight: 1})
		}
	}
	var to func(*framework.Profile)
	switch kind {
	case "none":
		return
	case "compiled in":
		to = add(wasm.CompiledIn{}, wasm.CompiledIn{})
	case "compiled in, kept":
		to = add(wasm.CompiledInKept{}, wasm.CompiledInKept{})
	default:
		module := wasm.Built(b)
		if kind == "guest without versions" {
			module = wasm.Unversioned(module)
		}
		if guest, err = host.Compile(ctx, module, wasm.Settings{Name: "guest", Local: kind == "guest that keeps answers"}); err != nil {
			b.Fatal(err)
		}
		to = func(p *framework.Profile) { guest.AddTo(p, 1) }
	}
	if err := s.Extend(ctx, []framework.Addition{{Name: "plugin", AddTo: to}}); err != nil {
		b.Fatal(err)
	}
}

// createAndBind creates b.N pods of one template, and waits until all are bound.
func createAndBind(b *testing.B, c kubernetes.Interface) {
	watch, err := c.CoreV1().Pods("default").Watch(b.Context(), metav1.ListOptions{})
	if err != nil {
		b.Fatal(err)
	}
	defer watch.Stop()
	const clients = 8
	var next atomic.Int64
	var creating sync.WaitGroup
	b.ResetTimer()
	used := processTime(b)
	for range clients {
		creating.Go(func() {
			for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
				pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("pod-", i), Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"example.com/disk": "ssd"}},
					Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")}}}}}}
				if _, err := c.CoreV1().Pods("default").Create(b.Context(), pod, metav1.CreateOptions{}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	bound := map[string]bool{}
	for len(bound) < b.N {
		select {
		case e := <-watch.ResultChan():
			if pod, ok := e.Object.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
				bound[pod.Name] = true
			}
		case <-time.After(time.Minute):
			b.Fatalf("%d of %d pods are bound", len(bound), b.N)
		}
	}
	b.StopTimer()
	creating.Wait()
	b.ReportMetric(float64((processTime(b)-used).Microseconds())/float64(b.N), "cpu-µs/pod")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pods/s")
}

// processTime is the processor time of this process.
func processTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
