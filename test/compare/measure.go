package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// measure fills in one side's figures. A control plane of its own takes the requests; a second one, with a node, the pods.
func measure(ctx context.Context, o *options, s side, f figures) error {
	size, err := s.size()
	if err != nil {
		return err
	}
	f["size"] = figure{value: float64(size) / 1e6}
	// What a side leaves running must not be there while the other one is measured.
	defer sweep()
	if !o.skip["control"] {
		if err := measureControl(ctx, o, s, f); err != nil {
			return fmt.Errorf("control plane: %w", err)
		}
		sweep()
	}
	if !o.skip["crowd"] {
		if err := measureCrowd(ctx, o, s, f); err != nil {
			return fmt.Errorf("crowd: %w", err)
		}
		sweep()
	}
	if !o.skip["definitions"] {
		if err := measureDefinitions(ctx, o, s, f); err != nil {
			return fmt.Errorf("definitions: %w", err)
		}
		sweep()
	}
	if o.skip["node"] {
		return nil
	}
	if err := measureNode(ctx, o, s, f); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	return nil
}

func folder(o *options, name string) (string, error) {
	dir := filepath.Join(o.state, name)
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	return dir, os.MkdirAll(dir, 0o755)
}

func measureControl(ctx context.Context, o *options, s side, f figures) error {
	c, err := begin(ctx, o, s.name()+"-control", s.startControl)
	if err != nil {
		return err
	}
	defer c.stop()
	f["ready"] = figure{value: c.started.Seconds()}
	progress("%s: ready after %.3f s", s.name(), c.started.Seconds())
	if err := pause(ctx, 20*time.Second); err != nil {
		return err
	}
	anon, rss := memory(tree(c.control))
	f["idle-anon"], f["idle-rss"] = figure{value: anon}, figure{value: rss}
	load, err := loadOn(ctx, c)
	if err != nil {
		return err
	}
	steps := []struct {
		key string
		run func() error
	}{
		{"requests", func() error { return requests(ctx, o, load, f, c.control) }},
		{"watch", func() error { return watches(ctx, load, o.scale, f, c.control) }},
		{"lists", func() error { return lists(ctx, load, o.scale, f, c.control) }},
		{"schedule", func() error { return scheduling(ctx, o, load, f, c.control) }},
	}
	for _, step := range steps {
		if o.skip[step.key] {
			continue
		}
		progress("%s: %s", s.name(), step.key)
		if err := step.run(); err != nil {
			return fmt.Errorf("%s: %w", step.key, err)
		}
		if o.profile {
			if err := o.keepHeap(ctx, load, s.name()+"-"+step.key, c.control); err != nil {
				return err
			}
		}
	}
	return nil
}

// step is a load that gives some of the table's rows.
type step struct {
	key  string
	rows []string
	run  func() error
}

// measureCrowd is what many clients do at once, to a control plane of their own.
func measureCrowd(ctx context.Context, o *options, s side, f figures) error {
	return o.steps(ctx, s, f, "crowd", func(load *clients, c *cluster) []step {
		return []step{
			{"idle", []string{"idle-watch", "idle-watch-h2"}, func() error { return idleWatches(ctx, o, load, f, c) }},
			{"relist", []string{"relist"}, func() error { return relist(ctx, load, o.scale, f, c) }},
			{"overload", []string{"overload-lease", "overload-livez", "overload-normal"}, func() error { return overload(ctx, load, o.scale, f) }},
			{"storm", []string{"storm"}, func() error { return storm(ctx, load, o.scale, f, c) }},
		}
	})
}

// measureDefinitions is what custom resources cost, on a control plane that has served nothing else.
func measureDefinitions(ctx context.Context, o *options, s side, f figures) error {
	return o.steps(ctx, s, f, "definitions", func(load *clients, c *cluster) []step {
		return []step{{"definitions", []string{"crd-memory", "crd-served"}, func() error { return definitions(ctx, o, load, f, c) }}}
	})
}

// steps runs loads on one control plane. A side that does not survive a step, or fails in it, has the reason in the place of the figure.
func (o *options) steps(ctx context.Context, s side, f figures, name string, list func(load *clients, c *cluster) []step) error {
	c, err := begin(ctx, o, s.name()+"-"+name, s.startControl)
	if err != nil {
		return err
	}
	defer c.stop()
	load, err := loadOn(ctx, c)
	if err != nil {
		return err
	}
	for _, step := range list(load, c) {
		if o.skip[step.key] || ctx.Err() != nil {
			continue
		}
		progress("%s: %s", s.name(), step.key)
		if err := step.run(); err != nil {
			progress("%s: %s: %v", s.name(), step.key, err)
			note := "failed: " + err.Error()
			if slices.ContainsFunc(c.control, (*process).ended) {
				note = "not survived"
			}
			for _, row := range step.rows {
				if f[row].value == 0 {
					f[row] = figure{note: note}
				}
			}
		}
		if o.profile && !slices.ContainsFunc(c.control, (*process).ended) {
			if err := o.keepHeap(ctx, load, s.name()+"-"+step.key, c.control); err != nil {
				progress("%s: %s: %v", s.name(), step.key, err)
			}
		}
	}
	return ctx.Err()
}

// keepHeap tells the memory as it is, and keeps the API server's heap profile.
func (o *options) keepHeap(ctx context.Context, c *clients, name string, control []*process) error {
	anon, rss := memory(tree(control))
	progress("%s: RssAnon %.0f MB, RSS %.0f MB, %.1f s of CPU since the start", name, anon, rss, processor(tree(control)).Seconds())
	raw, err := c.set.CoreV1().RESTClient().Get().AbsPath("/debug/pprof/heap").Param("gc", "1").DoRaw(ctx)
	if err != nil {
		return fmt.Errorf("heap profile: %w", err)
	}
	return os.WriteFile(filepath.Join(o.keep, name+".heap"), raw, 0o644)
}

// profiled is how many seconds of a load its CPU profile shows.
const profiled = 2

// keepProfiles begins, with -profile, what shows where the API server's time and memory go during a load; the function that it returns waits for the end:
// NAME.cpu, and NAME-before.allocs and NAME.allocs, whose difference is what the load has allocated.
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

// begin starts a cluster in a new folder; its logs are kept when it stops.
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

// loadOn gives clients of a cluster, with a namespace for what they make.
func loadOn(ctx context.Context, c *cluster) (*clients, error) {
	load, err := connect(c.kubeconfig)
	if err != nil {
		return nil, err
	}
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

func measureNode(ctx context.Context, o *options, s side, f figures) error {
	c, err := begin(ctx, o, s.name()+"-node", s.startNode)
	if err != nil {
		return err
	}
	defer c.stop()
	load, err := loadOn(ctx, c)
	if err != nil {
		return err
	}
	if _, err := load.set.CoreV1().Pods(space).Create(ctx, runningPod("first"), metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := waitPod(ctx, load.set, "first", isReady); err != nil {
		return err
	}
	f["first-pod"] = figure{value: time.Since(c.began).Seconds()}
	progress("%s: first pod after %.2f s", s.name(), time.Since(c.began).Seconds())
	if err := pause(ctx, 30*time.Second); err != nil {
		return err
	}
	before, at := processor(everything()), time.Now()
	if err := pause(ctx, 20*time.Second); err != nil {
		return err
	}
	f["idle-cpu"] = figure{value: 100 * (processor(everything()) - before).Seconds() / time.Since(at).Seconds()}
	// The pod's own processes are not the system's.
	anon, rss := memory(everything(), "pause")
	f["node-anon"], f["node-rss"] = figure{value: anon}, figure{value: rss}
	progress("%s: pods", s.name())
	return runningPods(ctx, load, f)
}

// keepLogs copies the processes' logs out of a folder that is removed afterwards.
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
