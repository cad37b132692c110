package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// measure fills in one side's figures. A failed measurement has the reason instead of figures; the
// error joins them.
func measure(ctx context.Context, o *options, s side, f figures) error {
	size, err := s.size()
	if err != nil {
		return err
	}
	f["size"] = figure{value: float64(size) / 1e6}
	// Processes of this side must not run while the other one is measured.
	defer sweep()
	var failures []error
	for _, system := range systems {
		if o.skip[system.name] || ctx.Err() != nil {
			continue
		}
		if err := o.measureSystem(ctx, s, f, system); err != nil {
			progress("%s: %s: %v", s.name(), system.name, err)
			failures = append(failures, fmt.Errorf("%s: %w", system.name, err))
		}
		sweep()
	}
	return errors.Join(append(failures, ctx.Err())...)
}

// systems lists what is started on an empty folder, one after the other, with the parts measured on
// each.
var systems = []system{
	{"control", []part{
		{"ready", []string{"ready", "idle-anon", "idle-rss"}, 2 * time.Minute, idleControl},
		{"requests", []string{"create", "get", "patch"}, 4 * time.Minute, func(ctx context.Context, m *measurement) error {
			return requests(ctx, m.o, m.load, m.f, m.c.control)
		}},
		{"watch", []string{"watch", "watch-h2"}, 5 * time.Minute, func(ctx context.Context, m *measurement) error {
			return watches(ctx, m.load, m.o.scale, m.f, m.c.control)
		}},
		{"lists", []string{"list-json", "list-proto"}, 5 * time.Minute, func(ctx context.Context, m *measurement) error {
			return lists(ctx, m.load, m.o.scale, m.f, m.c.control)
		}},
		{"schedule", []string{"schedule", "churn-rss"}, 7 * time.Minute, func(ctx context.Context, m *measurement) error {
			return scheduling(ctx, m.o, m.load, m.f, m.c.control)
		}},
	}},
	// Loads of many clients at once, on their own control plane.
	{"crowd", []part{
		{"idle", []string{"idle-watch", "idle-watch-h2"}, 6 * time.Minute, func(ctx context.Context, m *measurement) error {
			return idleWatches(ctx, m.o, m.load, m.f, m.c)
		}},
		{"relist", []string{"relist"}, 8 * time.Minute, func(ctx context.Context, m *measurement) error {
			return relist(ctx, m.load, m.o.scale, m.f, m.c)
		}},
		{"overload", []string{"overload-lease", "overload-livez", "overload-normal"}, 5 * time.Minute, func(ctx context.Context, m *measurement) error {
			return overload(ctx, m.load, m.o.scale, m.f)
		}},
		{"storm", []string{"storm"}, 8 * time.Minute, func(ctx context.Context, m *measurement) error {
			return storm(ctx, m.load, m.o.scale, m.f, m.c)
		}},
	}},
	// The cost of custom resources, on a control plane that has served nothing else.
	{"definitions", []part{
		{"definitions", []string{"crd-memory", "crd-served"}, 10 * time.Minute, func(ctx context.Context, m *measurement) error {
			return definitions(ctx, m.o, m.load, m.f, m.c)
		}},
	}},
	// A control plane of three servers, and the failure of one.
	{"several", []part{
		{"members", []string{"member-anon", "member-rss"}, 2 * time.Minute, memberMemory},
		{"requests3", []string{"create3", "create3-p99", "get3", "get3-p99"}, 5 * time.Minute, requestsToSeveral},
		{"watch3", []string{"watch3-p99"}, 3 * time.Minute, watchSeveral},
		{"stop", []string{"stop3"}, 10 * time.Minute, stopLeaders},
		{"kill", []string{"kill3"}, 15 * time.Minute, killLeaders},
		{"controllers", []string{"controllers3"}, 12 * time.Minute, killControllers},
	}},
	{"node", []part{
		{"node", []string{"first-pod", "idle-cpu", "node-anon", "node-rss"}, 4 * time.Minute, firstPod},
		{"pods", []string{"pod-ready", "pod-gone", "fifty"}, 5 * time.Minute, func(ctx context.Context, m *measurement) error {
			return runningPods(ctx, m.load, m.f)
		}},
		{"idlepods", []string{"pods-anon", "pods-cpu", "idle-gone"}, 6 * time.Minute, func(ctx context.Context, m *measurement) error {
			return idlePods(ctx, m.load, m.f)
		}},
	}},
}

func folder(o *options, name string) (string, error) {
	dir := filepath.Join(o.state, name)
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	return dir, os.MkdirAll(dir, 0o755)
}

// idleControl measures the memory of a control plane that has served nothing.
func idleControl(ctx context.Context, m *measurement) error {
	m.f["ready"] = figure{value: m.c.started.Seconds()}
	if err := pause(ctx, 20*time.Second); err != nil {
		return err
	}
	anon, rss := memory(tree(m.c.control))
	m.f["idle-anon"], m.f["idle-rss"] = figure{value: anon}, figure{value: rss}
	return nil
}

// firstPod measures the start of a node's first pod, and the cost of the idle system.
func firstPod(ctx context.Context, m *measurement) error {
	if _, err := m.load.set.CoreV1().Pods(space).Create(ctx, runningPod("first"), metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := waitPod(ctx, m.load.set, "first", isReady); err != nil {
		return err
	}
	m.f["first-pod"] = figure{value: time.Since(m.c.began).Seconds()}
	if err := pause(ctx, 30*time.Second); err != nil {
		return err
	}
	before, at := processor(everything()), time.Now()
	if err := pause(ctx, 20*time.Second); err != nil {
		return err
	}
	m.f["idle-cpu"] = figure{value: 100 * (processor(everything()) - before).Seconds() / time.Since(at).Seconds()}
	// The pod's own processes do not count.
	anon, rss := memory(everything(), "pause")
	m.f["node-anon"], m.f["node-rss"] = figure{value: anon}, figure{value: rss}
	return nil
}

// keepHeap prints the current memory, and keeps the API server's heap profile.
func (o *options) keepHeap(ctx context.Context, c *clients, name string, control []*process) error {
	anon, rss := memory(tree(control))
	progress("%s: RssAnon %.0f MB, RSS %.0f MB, %.1f s of CPU since the start", name, anon, rss, processor(tree(control)).Seconds())
	raw, err := c.set.CoreV1().RESTClient().Get().AbsPath("/debug/pprof/heap").Param("gc", "1").DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("heap profile: %w", err)
	}
	return os.WriteFile(filepath.Join(o.keep, name+".heap"), raw, 0o644)
}

// profiled is the length of a CPU profile in seconds.
const profiled = 2

// keepProfiles, with -profile, records the API server's CPU time and allocations during a load. The
// returned function waits for the end. It leaves NAME.cpu, and NAME-before.allocs and NAME.allocs,
// whose difference is what the load has allocated.
func (o *options) keepProfiles(ctx context.Context, c *clients, name string) (kept func() error, err error) {
	if !o.profile {
		return func() error { return nil }, nil
	}
	keep := func(kind, file string, seconds int) error {
		request := c.set.CoreV1().RESTClient().Get().AbsPath("/debug/pprof/" + kind)
		if seconds > 0 {
			request = request.Param("seconds", strconv.Itoa(seconds))
		}
		raw, err := request.DoRaw(ctx)
		if err != nil {
			return fmt.Errorf("profile %s: %w", file, err)
		}
		return os.WriteFile(filepath.Join(o.keep, file), raw, 0o644)
	}
	if err := keep("allocs", name+"-before.allocs", 0); err != nil {
		return nil, err
	}
	done := make(chan error, 1)
	go func() { done <- keep("profile", name+".cpu", profiled) }()
	return func() error {
		if err := <-done; err != nil {
			return err
		}
		return keep("allocs", name+".allocs", 0)
	}, nil
}

// begin starts a cluster in a new folder. Its logs are kept when it stops.
func begin(ctx context.Context, o *options, name string, start func(context.Context, string) (*cluster, error)) (*cluster, error) {
	dir, err := folder(o, name)
	if err != nil {
		return nil, err
	}
	c, err := start(ctx, dir)
	if err != nil {
		o.keepLogs(dir)
		return nil, err
	}
	stop := c.stop
	c.stop = func() { stop(); o.keepLogs(dir) }
	return c, nil
}

// loadOn returns clients of a cluster, with a namespace for their objects.
func loadOn(ctx context.Context, c *cluster) (*clients, error) {
	load, err := connect(c.kubeconfig)
	if err != nil {
		return nil, err
	}
	load.meter = &meter{}
	return load, makeSpace(ctx, load)
}

func makeSpace(ctx context.Context, c *clients) error {
	_, err := c.set.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space}}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	// Pods are admitted once the namespace has its service account.
	return until(ctx, 30*time.Second, "service account default", func() bool {
		_, err := c.set.CoreV1().ServiceAccounts(space).Get(ctx, "default", metav1.GetOptions{})
		return err == nil
	})
}

// keepLogs copies the processes' logs out of a folder that will be removed.
func (o *options) keepLogs(dir string) {
	logs, _ := filepath.Glob(filepath.Join(dir, "*.log"))
	for _, path := range logs {
		if text, err := os.ReadFile(path); err == nil && o.keep != "" {
			_ = os.WriteFile(filepath.Join(o.keep, filepath.Base(dir)+"-"+filepath.Base(path)), text, 0o644)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func progress(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
