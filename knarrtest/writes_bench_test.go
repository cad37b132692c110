package knarrtest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
)

// The benchmarks measure the CPU time that one write costs this process, in which the whole control
// plane runs. The clients run in another process, so a CPU profile shows the server alone:
//
//	go test ./knarrtest -run '^$' -bench Writes -benchtime 5000x -benchmem -cpuprofile cpu.out

const (
	inFlight   = 64
	benchNodes = 1000
	loadEnv    = "KNARRTEST_LOAD" // "operation kubeconfig first count" of a load process
)

// BenchmarkWrites measures single requests over HTTP, and the scheduler's writes by function call.
func BenchmarkWrites(b *testing.B) {
	for _, durable := range []bool{false, true} {
		b.Run(durability(durable), func(b *testing.B) {
			c := benchCluster(b, durable, WithoutScheduler())
			next := 0 // each run writes new objects
			for _, operation := range []string{"create-configmap", "get-configmap", "patch-configmap", "create-pod"} {
				b.Run(operation, func(b *testing.B) {
					first := next
					if strings.HasPrefix(operation, "create") {
						next += b.N
					} else {
						first = 0
					}
					perWrite(b, startLoad(b, c, operation, first))
				})
			}
			s := c.server.Client(auth.Component(auth.UserScheduler))
			b.Run("bind", func(b *testing.B) {
				first := next
				next += b.N
				startLoad(b, c, "create-pod", first)()
				perWrite(b, func() {
					each(b, func(i int) error { return bindPod(b.Context(), s, podName(first+i)) })
				})
			})
			b.Run("bind-with-event", func(b *testing.B) {
				first := next
				next += b.N
				startLoad(b, c, "create-pod", first)()
				perWrite(b, func() {
					each(b, func(i int) error { return bindAndRecord(b.Context(), s, podName(first+i)) })
				})
			})
			b.Run("event", func(b *testing.B) {
				first := next
				next += b.N
				perWrite(b, func() {
					each(b, func(i int) error { return recordBinding(b.Context(), s, podName(first+i)) })
				})
			})
		})
	}
}

// BenchmarkCreateToBound measures a pod from its create over HTTP until it is bound, with 1,000
// nodes and all controllers.
func BenchmarkCreateToBound(b *testing.B) {
	for _, durable := range []bool{false, true} {
		b.Run(durability(durable), func(b *testing.B) {
			c := benchCluster(b, durable)
			admin := c.server.Client(auth.Component("system:benchmark", auth.GroupMasters))
			makeBenchNodes(b, admin)
			ctx, cancel := context.WithCancel(b.Context())
			pods, err := client.Open[*corev1.Pod](ctx, admin, client.Scope{})
			if err != nil {
				b.Fatal(err)
			}
			var bound atomic.Int64
			_, done := pods.Subscribe(ctx, func(e client.TypedEvent[*corev1.Pod]) {
				if e.Type == client.Modified && e.Old.Spec.NodeName == "" && e.Object.Spec.NodeName != "" {
					bound.Add(1)
				}
			})
			defer func() { cancel(); <-done }()
			next := 0
			b.Run("pod", func(b *testing.B) {
				first, before := next, bound.Load()
				next += b.N
				run := startLoad(b, c, "create-pod", first)
				perWrite(b, func() {
					run()
					for bound.Load() < before+int64(b.N) {
						time.Sleep(5 * time.Millisecond)
					}
				})
			})
		})
	}
}

func durability(durable bool) string {
	if durable {
		return "fsync"
	}
	return "unsynced"
}

func benchCluster(b *testing.B, durable bool, opts ...Option) *Cluster {
	if durable {
		opts = append(opts, OnDisk(b.TempDir()))
	}
	return Start(b, opts...)
}

// makeBenchNodes creates ready nodes and waits until the scheduler may use them.
func makeBenchNodes(b *testing.B, c client.Interface) {
	for i := range benchNodes {
		name := nodeName(i)
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelHostname: name, corev1.LabelTopologyZone: fmt.Sprintf("z%d", i%3), "hollow": "yes"}}}
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("32"), corev1.ResourceMemory: resource.MustParse("64Gi"), corev1.ResourcePods: resource.MustParse("110")}
		n.Status.Capacity = n.Status.Allocatable
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Hollow", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now()}}
		if _, err := client.Create(b.Context(), c, n); err != nil {
			b.Fatal(err)
		}
	}
	nodes, err := client.Open[*corev1.Node](b.Context(), c, client.Scope{})
	if err != nil {
		b.Fatal(err)
	}
	tainted := func() bool {
		for _, n := range nodes.List("", nil) {
			if len(n.Spec.Taints) > 0 {
				return true
			}
		}
		return false
	}
	for tainted() {
		time.Sleep(10 * time.Millisecond)
	}
}

// perWrite runs a load of b.N writes and reports this process's CPU time, allocations and rate.
func perWrite(b *testing.B, load func()) {
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu := processTime()
	b.ResetTimer()
	load()
	b.StopTimer()
	spent := processTime() - cpu
	runtime.ReadMemStats(&after)
	n := float64(b.N)
	b.ReportMetric(float64(spent.Microseconds())/n, "cpu-µs/op")
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/n, "mallocs/op")
	b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/n, "bytes/op")
	b.ReportMetric(n/b.Elapsed().Seconds(), "op/s")
}

func processTime() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// each calls fn for the numbers below b.N, some at a time.
func each(b *testing.B, fn func(i int) error) {
	if err := inParallel(b.N, fn); err != nil {
		b.Fatal(err)
	}
}

func inParallel(n int, fn func(i int) error) error {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var work sync.WaitGroup
	for range min(inFlight, n) {
		work.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && failed.Load() == nil; i = int(next.Add(1)) - 1 {
				if err := fn(i); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	work.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

func bindPod(ctx context.Context, c client.Interface, name string) error {
	_, err := client.Bind(ctx, c, bindingOf(name), nil)
	return err
}

func recordBinding(ctx context.Context, c client.Interface, pod string) error {
	_, err := client.Create(ctx, c, eventOf(pod))
	return err
}

func bindAndRecord(ctx context.Context, c client.Interface, pod string) error {
	recorded, err := client.Bind(ctx, c, bindingOf(pod), eventOf(pod))
	if err == nil && !recorded {
		err = errors.New("the event was not recorded")
	}
	return err
}

func bindingOf(pod string) *corev1.Binding {
	return &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: pod}, Target: corev1.ObjectReference{Kind: "Node", Name: "node-1"}}
}

func eventOf(pod string) *corev1.Event {
	now := time.Now()
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("%s.%x", pod, now.UnixNano())},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: "default", Name: pod, UID: "7c0b1b0e-6f0d-4d43-8f2c-9d3f1d0a4a11"},
		Reason:         "Scheduled", Message: "Successfully assigned default/" + pod + " to node-1", Type: corev1.EventTypeNormal,
		Source: corev1.EventSource{Component: "default-scheduler"}, FirstTimestamp: metav1.NewTime(now), LastTimestamp: metav1.NewTime(now), Count: 1,
		EventTime: metav1.NewMicroTime(now), Action: "Binding", ReportingController: "default-scheduler", ReportingInstance: "default-scheduler",
	}
}

// startLoad starts a process with b.N requests to make, and returns a function that makes them.
func startLoad(b *testing.B, c *Cluster, operation string, first int) (run func()) {
	cmd := exec.Command(os.Args[0], "-test.run=^TestLoadProcess$")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %d %d", loadEnv, operation, c.KubeconfigPath(), first, b.N))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "connected" {
		b.Fatalf("the load process: %q, %v", lines.Text(), cmd.Wait())
	}
	return func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		if err := cmd.Wait(); err != nil {
			b.Fatal("the load process: ", err)
		}
	}
}

// TestLoadProcess is the load of a benchmark, which starts it as a process.
func TestLoadProcess(t *testing.T) {
	spec := strings.Fields(os.Getenv(loadEnv))
	if len(spec) != 4 {
		t.Skip("not started by a benchmark")
	}
	config, err := clientcmd.BuildConfigFromFlags("", spec[1])
	if err != nil {
		t.Fatal(err)
	}
	first, _ := strconv.Atoi(spec[2])
	count, _ := strconv.Atoi(spec[3])
	l, err := newLoad(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.connect(); err != nil {
		t.Fatal(err)
	}
	fmt.Println("connected")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the benchmark begins to measure
	if err := inParallel(count, func(i int) error { return l.request(spec[0], first+i) }); err != nil {
		t.Fatal(err)
	}
}

// load makes requests on connections of HTTP/1.1.
type load struct {
	url    string
	client *http.Client
}

func newLoad(config *rest.Config) (*load, error) {
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	return &load{config.Host, &http.Client{Transport: &http.Transport{TLSClientConfig: tls, MaxIdleConnsPerHost: inFlight}}}, nil
}

// connect opens all connections.
func (l *load) connect() error {
	var all sync.WaitGroup
	all.Add(inFlight)
	return inParallel(inFlight, func(int) error {
		all.Done()
		all.Wait()
		return l.do("GET", "/api/v1/namespaces/default/configmaps?limit=1", "", nil)
	})
}

const protobufType = "application/vnd.kubernetes.protobuf"

func (l *load) do(method, path, contentType string, body []byte) error {
	r, err := http.NewRequest(method, l.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Accept", protobufType)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	answer, err := l.client.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= 300 {
		err = fmt.Errorf("%s %s: %s: %q", method, path, answer.Status, text)
	}
	return err
}

const benchMaps = "/api/v1/namespaces/default/configmaps"

func (l *load) request(operation string, i int) error {
	switch operation {
	case "create-configmap":
		return l.create(benchMaps, &corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Name: mapName(i), Namespace: "default", Labels: map[string]string{"app": "compare", "n": fmt.Sprint(i % 10)}},
			Data:       map[string]string{"key": fmt.Sprintf("%0512d", i)},
		})
	case "get-configmap":
		return l.do("GET", benchMaps+"/"+mapName(i), "", nil)
	case "patch-configmap":
		patch := fmt.Sprintf(`{"metadata":{"labels":{"patched":"p%d"}}}`, time.Now().UnixNano())
		return l.do("PATCH", benchMaps+"/"+mapName(i), "application/merge-patch+json", []byte(patch))
	case "create-pod":
		return l.create("/api/v1/namespaces/default/pods", benchPod(i))
	}
	return fmt.Errorf("unknown operation %q", operation)
}

func mapName(i int) string { return fmt.Sprintf("c-%06d", i) }

func podName(i int) string { return fmt.Sprintf("p-%06d", i) }

func benchPod(i int) *corev1.Pod {
	p := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: podName(i), Namespace: "default", Labels: map[string]string{"app": "compare"}},
	}
	p.Spec.Containers = []corev1.Container{{
		Name: "main", Image: "registry.k8s.io/pause:3.10.2", Env: []corev1.EnvVar{{Name: "A", Value: "b"}, {Name: "C", Value: "d"}},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("10Mi")}},
	}}
	p.Spec.AutomountServiceAccountToken = new(bool)
	return p
}

var wireFormat = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)

func (l *load) create(path string, obj k8sruntime.Object) error {
	body, err := k8sruntime.Encode(wireFormat, obj)
	if err != nil {
		return err
	}
	return l.do("POST", path, protobufType, body)
}
