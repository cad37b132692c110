package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

const space = "compare"

const (
	configMaps = "/api/v1/namespaces/" + space + "/configmaps"
	podsPath   = "/api/v1/namespaces/" + space + "/pods"
)

func configMapName(i int) string { return fmt.Sprintf("c-%06d", i) }

func configMap(i int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: configMapName(i), Namespace: space, Labels: map[string]string{"app": "compare", "n": fmt.Sprint(i % 10)}},
		Data:       map[string]string{"key": fmt.Sprintf("%0512d", i)},
	}
}

var wireFormat = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)

// create posts an object in protobuf, as upstream's components do.
func (w *wire) create(path string, obj runtime.Object, kind string) error {
	return w.createAs(path, obj, corev1.SchemeGroupVersion.WithKind(kind))
}

func (w *wire) createAs(path string, obj runtime.Object, kind schema.GroupVersionKind) error {
	obj.GetObjectKind().SetGroupVersionKind(kind)
	body, err := runtime.Encode(wireFormat, obj)
	if err != nil {
		return err
	}
	_, err = w.do("POST", path, protobufType, protobufType, body)
	return err
}

func (w *wire) label(i int, value string) error {
	patch := fmt.Sprintf(`{"metadata":{"labels":{"patched":"%s%d"}}}`, value, i)
	_, err := w.do("PATCH", configMaps+"/"+configMapName(i), mergePatch, protobufType, []byte(patch))
	return err
}

// requests measures create, get and merge patch with 64 in flight, and the CPU time of each.
func requests(ctx context.Context, o *options, c *clients, f figures, server []*process) error {
	n := int(10000 * o.scale)
	for _, load := range []struct {
		key  string
		n    int
		call func(w *wire, i int) error
	}{
		{"create", n, func(w *wire, i int) error { return w.create(configMaps, configMap(i), "ConfigMap") }},
		{"get", 5 * n, func(w *wire, i int) error {
			_, err := w.do("GET", configMaps+"/"+configMapName(i%n), "", protobufType, nil)
			return err
		}},
		{"patch", n, func(w *wire, i int) error { return w.label(i, "p") }},
	} {
		kept, err := o.keepProfiles(ctx, c, load.key)
		if err != nil {
			return err
		}
		spent := stopwatch(server)
		rate, err := c.each(ctx, load.n, 64, load.call)
		if err != nil {
			return fmt.Errorf("%s: %w", load.key, err)
		}
		serving, loading := spent()
		each := func(d time.Duration) float64 { return d.Seconds() * 1e6 / float64(load.n) }
		f[load.key] = figure{value: rate, note: fmt.Sprintf("CPU: server %.0f µs, load %.0f µs", each(serving), each(loading))}
		progress("%s: %.0f /s, %s", load.key, rate, f[load.key].note)
		if err := kept(); err != nil {
			return err
		}
	}
	return nil
}

// lists measures whole lists of 5,000 pods, 8 in flight, and removes the pods again.
func lists(ctx context.Context, c *clients, scale float64, f figures, server []*process) error {
	const pods = 5000
	if _, err := c.each(ctx, pods, 64, func(w *wire, i int) error { return w.create(podsPath, unscheduledPod(i), "Pod") }); err != nil {
		return fmt.Errorf("create pods: %w", err)
	}
	for key, accept := range map[string]string{"list-json": jsonType, "list-proto": protobufType} {
		var bytes atomic.Int64
		n := int(200*scale) + 8
		before := processor(tree(server))
		rate, err := c.each(ctx, n, 8, func(w *wire, _ int) error {
			read, err := w.do("GET", podsPath, "", accept, nil)
			bytes.Add(read)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		spent := (processor(tree(server)) - before).Seconds() * 1000 / float64(n)
		f[key] = figure{value: rate, note: fmt.Sprintf("%.0f MB/s, CPU per list: server %.1f ms", rate*float64(bytes.Load())/float64(n)/1e6, spent)}
	}
	now := int64(0)
	return c.set.CoreV1().Pods(space).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{})
}

// unscheduledPod returns a pod of typical size that no scheduler handles, so that it stays as it
// is.
func unscheduledPod(i int) *corev1.Pod {
	p := schedulablePod(i)
	p.Spec.SchedulerName = "nobody"
	return p
}

func schedulablePod(i int) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p-%06d", i), Namespace: space, Labels: map[string]string{"app": "compare"}}}
	p.Spec.Containers = []corev1.Container{{
		Name: "main", Image: "registry.k8s.io/pause:3.10.2", Env: []corev1.EnvVar{{Name: "A", Value: "b"}, {Name: "C", Value: "d"}},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: quantity("10m"), corev1.ResourceMemory: quantity("10Mi")}},
	}}
	no := false
	p.Spec.AutomountServiceAccountToken = &no
	return p
}

// watches measures the delivery of events to 1,000 streams of one namespace while ConfigMaps are
// patched with 64 in flight. It counts the events that arrive from the first patch to the last
// event. Each stream first has its own connection, then a hundred share one of HTTP/2.
func watches(ctx context.Context, c *clients, scale float64, f figures, server []*process) error {
	if err := c.delivered(ctx, "watch", int(3000*scale), f, server, c.plainStreams); err != nil {
		return err
	}
	return c.delivered(ctx, "watch-h2", int(1500*scale), f, server, c.sharedStreams)
}

// delivered measures the events of n writes on the streams that open returns.
func (c *clients) delivered(ctx context.Context, key string, n int, f figures, server []*process, open func(ctx context.Context, path string, n int) ([]stream, error)) error {
	const streams = 1000
	newest, err := c.set.CoreV1().ConfigMaps(space).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	bodies, err := open(ctx, configMaps+"?watch=1&resourceVersion="+newest.ResourceVersion, streams)
	if err != nil {
		return err
	}
	counter := &eventCounter{}
	var wg sync.WaitGroup
	defer wg.Wait()
	for _, body := range bodies {
		defer body.Close()
		wg.Go(func() { counter.count(body) })
	}
	spent := stopwatch(server)
	began := time.Now()
	written, err := c.each(ctx, n, 64, func(w *wire, i int) error { return w.label(i, key) })
	if err != nil {
		return fmt.Errorf("watch load: %w", err)
	}
	counter.settle(ctx, int64(n*streams))
	events := float64(counter.events.Load())
	rate := events / time.Unix(0, counter.last.Load()).Sub(began).Seconds()
	serving, loading := spent()
	f[key] = figure{value: rate, note: fmt.Sprintf("%d of %d streams dropped, %.0f writes/s, CPU per event: server %.2f µs, load %.2f µs",
		counter.dropped.Load(), streams, written, serving.Seconds()*1e6/events, loading.Seconds()*1e6/events)}
	return nil
}

// plainStreams opens watches with a connection each.
func (c *clients) plainStreams(_ context.Context, path string, n int) ([]stream, error) {
	return openAll(n, func(i int) (stream, error) {
		w, err := c.watch(path)
		if err != nil {
			return nil, err
		}
		return wireStream{&chunks{in: w.in}, w.conn}, nil
	})
}

// openAll opens streams concurrently. If one fails, it closes all of them.
func openAll(n int, open func(i int) (stream, error)) ([]stream, error) {
	bodies := make([]stream, n)
	err := parallel(n, 16, func(i int) (err error) {
		bodies[i], err = open(i)
		return err
	})
	if err == nil {
		return bodies, nil
	}
	for _, body := range bodies {
		if body != nil {
			body.Close()
		}
	}
	return nil, err
}

// wireStream is an endless answer on its own connection.
type wireStream struct {
	body io.Reader
	io.Closer
}

func (s wireStream) follow(taken func(b []byte)) error {
	buf := make([]byte, 32<<10)
	for {
		n, err := s.body.Read(buf)
		taken(buf[:n])
		if err != nil {
			return err
		}
	}
}

// eventCounter counts the events on watch streams.
type eventCounter struct {
	events, dropped atomic.Int64
	last            atomic.Int64 // time of the last events, Unix time in ns
	ended           atomic.Bool
}

// count reads length-prefixed frames until the stream ends. A stream that ends before the
// measurement counts as dropped.
func (c *eventCounter) count(from stream) {
	head, filled, skip := [4]byte{}, 0, 0
	_ = from.follow(func(b []byte) {
		events := int64(0)
		for len(b) > 0 {
			if skip > 0 {
				passed := min(skip, len(b))
				b, skip = b[passed:], skip-passed
				if skip == 0 {
					events++
				}
				continue
			}
			got := copy(head[filled:], b)
			b, filled = b[got:], filled+got
			if filled == len(head) {
				skip, filled = int(binary.BigEndian.Uint32(head[:])), 0
			}
		}
		if events > 0 {
			c.events.Add(events)
			c.last.Store(time.Now().UnixNano())
		}
	})
	if !c.ended.Load() {
		c.dropped.Add(1)
	}
}

// settle waits until all events have arrived, or none for five seconds.
func (c *eventCounter) settle(ctx context.Context, want int64) {
	for ctx.Err() == nil && c.events.Load() < want && time.Since(time.Unix(0, c.last.Load())) < 5*time.Second {
		_ = pause(ctx, 5*time.Millisecond)
	}
	c.ended.Store(true)
}
