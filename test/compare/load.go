package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// clients is how the load reaches a cluster: without client-side limits, over as many connections as asked for.
type clients struct {
	config *rest.Config
	set    []*kubernetes.Clientset
}

func connect(kubeconfig string, connections int) (*clients, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = -1, -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	c := &clients{config: config}
	for range connections {
		// A transport of its own, hence a connection of its own: client-go caches transports by configuration.
		own := rest.CopyConfig(config)
		own.Dial = nil
		tlsConfig, err := rest.TLSConfigFor(own)
		if err != nil {
			return nil, err
		}
		transport := &http.Transport{TLSClientConfig: tlsConfig, ForceAttemptHTTP2: true, DisableCompression: true}
		own.TLSClientConfig, own.Transport = rest.TLSClientConfig{}, transport
		set, err := kubernetes.NewForConfig(own)
		if err != nil {
			return nil, err
		}
		c.set = append(c.set, set)
	}
	return c, nil
}

// each calls fn n times from inFlight goroutines, and returns calls per second.
func (c *clients) each(ctx context.Context, n, inFlight int, fn func(ctx context.Context, set *kubernetes.Clientset, i int) error) (float64, error) {
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	began := time.Now()
	for w := range inFlight {
		wg.Go(func() {
			set := c.set[w%len(c.set)]
			for {
				i := int(next.Add(1)) - 1
				if i >= n || failed.Load() != nil || ctx.Err() != nil {
					return
				}
				if err := fn(ctx, set, i); err != nil {
					failed.CompareAndSwap(nil, &err)
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		return 0, *err
	}
	return float64(n) / time.Since(began).Seconds(), ctx.Err()
}

const space = "compare"

func configMap(i int) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c-%06d", i), Namespace: space, Labels: map[string]string{"app": "compare", "n": fmt.Sprint(i % 10)}},
		Data:       map[string]string{"key": fmt.Sprintf("%0512d", i)},
	}
}

// requests measures create, get and merge patch with 64 in flight.
func requests(ctx context.Context, c *clients, scale float64, f figures) error {
	n := int(10000 * scale)
	rate, err := c.each(ctx, n, 64, func(ctx context.Context, set *kubernetes.Clientset, i int) error {
		_, err := set.CoreV1().ConfigMaps(space).Create(ctx, configMap(i), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	f["create"] = figure{value: rate}
	if rate, err = c.each(ctx, 4*n, 64, func(ctx context.Context, set *kubernetes.Clientset, i int) error {
		_, err := set.CoreV1().ConfigMaps(space).Get(ctx, fmt.Sprintf("c-%06d", i%n), metav1.GetOptions{})
		return err
	}); err != nil {
		return fmt.Errorf("get: %w", err)
	}
	f["get"] = figure{value: rate}
	if rate, err = c.each(ctx, n, 64, func(ctx context.Context, set *kubernetes.Clientset, i int) error {
		patch := fmt.Sprintf(`{"metadata":{"labels":{"patched":"%d"}}}`, i)
		_, err := set.CoreV1().ConfigMaps(space).Patch(ctx, fmt.Sprintf("c-%06d", i), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}); err != nil {
		return fmt.Errorf("patch: %w", err)
	}
	f["patch"] = figure{value: rate}
	return nil
}

// lists measures whole lists of 5,000 pods, 8 in flight, read to the end but not decoded.
func lists(ctx context.Context, c *clients, scale float64, f figures) error {
	const pods = 5000
	if _, err := c.each(ctx, pods, 64, func(ctx context.Context, set *kubernetes.Clientset, i int) error {
		_, err := set.CoreV1().Pods(space).Create(ctx, unscheduledPod(i), metav1.CreateOptions{})
		return err
	}); err != nil {
		return fmt.Errorf("create pods: %w", err)
	}
	for key, accept := range map[string]string{"list-json": "application/json", "list-proto": "application/vnd.kubernetes.protobuf"} {
		var bytes atomic.Int64
		n := int(60*scale) + 8
		rate, err := c.each(ctx, n, 8, func(ctx context.Context, set *kubernetes.Clientset, _ int) error {
			body, err := set.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/"+space+"/pods").SetHeader("Accept", accept).Stream(ctx)
			if err != nil {
				return err
			}
			defer body.Close()
			read, err := io.Copy(io.Discard, body)
			bytes.Add(read)
			return err
		})
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		f[key] = figure{value: rate, note: fmt.Sprintf("%.0f MB/s", rate*float64(bytes.Load())/float64(n)/1e6)}
	}
	return nil
}

// unscheduledPod is of a typical size and for no scheduler, so that it stays as it is.
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

// watches measures events delivered to 200 streams of one namespace while ConfigMaps are patched with 64 in flight.
func watches(ctx context.Context, c *clients, scale float64, f figures) error {
	const streams = 200
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var got, dropped atomic.Int64
	var wg sync.WaitGroup
	n := int(3000 * scale)
	var opened sync.WaitGroup
	opened.Add(streams)
	for w := range streams {
		wg.Go(func() {
			body, err := c.set[w%len(c.set)].CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/"+space+"/configmaps").
				Param("watch", "1").Param("resourceVersion", "0").Param("labelSelector", "patched").SetHeader("Accept", "application/vnd.kubernetes.protobuf;stream=watch").Stream(ctx)
			opened.Done()
			if err != nil {
				dropped.Add(1)
				return
			}
			defer body.Close()
			if err := frames(body, &got); err != nil && ctx.Err() == nil {
				dropped.Add(1)
			}
		})
	}
	opened.Wait()
	time.Sleep(2 * time.Second) // what was there before
	began, before := time.Now(), got.Load()
	if _, err := c.each(ctx, n, 64, func(ctx context.Context, set *kubernetes.Clientset, i int) error {
		_, err := set.CoreV1().ConfigMaps(space).Patch(ctx, fmt.Sprintf("c-%06d", i), types.MergePatchType, []byte(fmt.Sprintf(`{"metadata":{"labels":{"patched":"w%d"}}}`, i)), metav1.PatchOptions{})
		return err
	}); err != nil {
		return fmt.Errorf("watch load: %w", err)
	}
	want := before + int64(n*streams)
	_ = until(ctx, 60*time.Second, "events", func() bool { return got.Load() >= want || dropped.Load() > 0 })
	rate := float64(got.Load()-before) / time.Since(began).Seconds()
	cancel()
	wg.Wait()
	f["watch"] = figure{value: rate, note: fmt.Sprintf("%d streams dropped, writes included", dropped.Load())}
	return nil
}

// frames counts length-prefixed frames.
func frames(body io.Reader, count *atomic.Int64) error {
	var head [4]byte
	for {
		if _, err := io.ReadFull(body, head[:]); err != nil {
			return err
		}
		n := int64(head[0])<<24 | int64(head[1])<<16 | int64(head[2])<<8 | int64(head[3])
		if _, err := io.CopyN(io.Discard, body, n); err != nil {
			return err
		}
		count.Add(1)
	}
}
