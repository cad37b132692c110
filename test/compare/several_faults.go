package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// endpoint is a member's API server.
type endpoint struct {
	url    string
	client *http.Client
}

func (c *cluster) endpoints() ([]endpoint, error) {
	var all []endpoint
	for _, m := range c.members {
		config, err := clientcmd.BuildConfigFromFlags("", m.kubeconfig)
		if err != nil {
			return nil, err
		}
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			return nil, err
		}
		all = append(all, endpoint{config.Host, client})
	}
	return all, nil
}

// patience3 is how long a writer waits for an answer before it asks another endpoint.
const patience3 = 2 * time.Second

// writer patches one ConfigMap over and over. It knows all endpoints: after an error, and without
// an answer, the next one gets the request.
type writer struct {
	endpoints []endpoint
	at        int // the endpoint in use
	object    int // number of the ConfigMap

	mu       sync.Mutex
	last     time.Time     // end of the last successful write
	longest  time.Duration // longest time between two of them
	writes   int
	failures int
	err      error // the last error
}

func (w *writer) run(ctx context.Context) {
	w.last = time.Now()
	for i := 0; ctx.Err() == nil; i++ {
		err := w.write(ctx, i)
		if ctx.Err() != nil {
			return
		}
		w.mu.Lock()
		if err == nil {
			now := time.Now()
			w.longest, w.last = max(w.longest, now.Sub(w.last)), now
			w.writes++
		} else {
			w.failures++
			w.err = err
			w.at = (w.at + 1) % len(w.endpoints)
		}
		w.mu.Unlock()
		_ = pause(ctx, 5*time.Millisecond)
	}
}

func (w *writer) write(ctx context.Context, i int) error {
	ctx, stop := context.WithTimeout(ctx, patience3)
	defer stop()
	e := w.endpoints[w.at]
	body := fmt.Sprintf(`{"metadata":{"labels":{"written":"w%d"}}}`, i)
	request, err := http.NewRequestWithContext(ctx, http.MethodPatch, e.url+configMaps+"/"+configMapName(w.object), bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", mergePatch)
	request.Header.Set("Accept", protobufType)
	response, err := e.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", e.url, response.Status)
	}
	return nil
}

// since returns the time of the last successful write and the longest time without one, including
// the present one.
func (w *writer) since() (last time.Time, longest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last, max(w.longest, time.Since(w.last))
}

// outage runs a writer at each member, makes a fault and returns the longest time in which one of
// them had no successful write.
func outage(ctx context.Context, c *cluster, fault func()) (time.Duration, error) {
	endpoints, err := c.endpoints()
	if err != nil {
		return 0, err
	}
	writing, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	var writers []*writer
	for i := range endpoints {
		w := &writer{endpoints: endpoints, at: i, object: 900000 + i, last: time.Now()}
		writers = append(writers, w)
		group.Go(func() { w.run(writing) })
	}
	if err := pause(ctx, time.Second); err != nil {
		return 0, err
	}
	for _, w := range writers { // connecting does not count
		w.mu.Lock()
		w.longest = 0
		w.mu.Unlock()
	}
	at := time.Now()
	fault()
	err = until(ctx, time.Minute, "writes after the fault", func() bool {
		for _, w := range writers {
			if last, _ := w.since(); last.Before(at.Add(time.Second)) {
				return false
			}
		}
		return true
	})
	if err != nil {
		return 0, err
	}
	if err := pause(ctx, 2*time.Second); err != nil { // a second fault of the same cause
		return 0, err
	}
	longest := time.Duration(0)
	for i, w := range writers {
		_, gap := w.since()
		longest = max(longest, gap)
		w.mu.Lock()
		progress("  writer %d: %d ms without a write; %d writes, %d failures, the last: %v", i+1, gap.Milliseconds(), w.writes, w.failures, w.err)
		w.mu.Unlock()
	}
	return longest, nil
}

// faults makes a fault of etcd's leader and what runs beside it n times. The member comes back
// after each one.
func faults(ctx context.Context, m *measurement, n int, signal syscall.Signal) (timing, error) {
	var t timing
	for i := range memberCount {
		if err := create(ctx, m.load, 900000+i); err != nil {
			return t, err
		}
	}
	m.load.meter.begin(n)
	for range n {
		leader, err := m.c.storeLeader(ctx)
		if err != nil {
			return t, err
		}
		ended := make(chan struct{})
		gap, err := outage(ctx, m.c, func() {
			go func() { defer close(ended); leader.end(signal) }()
		})
		<-ended
		if err != nil {
			return t, err
		}
		t.times = append(t.times, gap)
		progress("%s: %s of %s: %d ms without a write", m.side.name(), signal, leader.name, gap.Milliseconds())
		m.load.meter.add()
		if err := m.recover(ctx, leader); err != nil {
			return t, err
		}
	}
	slices.Sort(t.times)
	return t, nil
}

// recover starts a member again and lets the cluster settle.
func (m *measurement) recover(ctx context.Context, one *member) error {
	if err := one.back(ctx); err != nil {
		return err
	}
	return pause(ctx, 3*time.Second)
}

// create makes a ConfigMap unless it is there.
func create(ctx context.Context, c *clients, i int) error {
	if _, err := c.set.CoreV1().ConfigMaps(space).Get(ctx, configMapName(i), metav1.GetOptions{}); err == nil {
		return nil
	}
	_, err := c.set.CoreV1().ConfigMaps(space).Create(ctx, configMap(i), metav1.CreateOptions{})
	return err
}

// repeats is the number of faults: at least three.
func (o *options) repeats(full int) int { return max(3, int(float64(full)*min(1, o.scale))) }

func killLeaders(ctx context.Context, m *measurement) error {
	return m.outages(ctx, "kill3", syscall.SIGKILL)
}

func stopLeaders(ctx context.Context, m *measurement) error {
	return m.outages(ctx, "stop3", syscall.SIGTERM)
}

func (m *measurement) outages(ctx context.Context, key string, signal syscall.Signal) error {
	t, err := faults(ctx, m, m.o.repeats(20), signal)
	if err != nil {
		return err
	}
	m.f[key] = milliseconds(t)
	return nil
}

// killControllers kills the member whose controllers act, and measures the time until a Deployment
// gets a ReplicaSet.
func killControllers(ctx context.Context, m *measurement) error {
	var t timing
	for i := range m.o.repeats(10) {
		leader, err := m.c.componentLeader(ctx)
		if err != nil {
			return err
		}
		alive := m.c.members[0]
		if alive == leader {
			alive = m.c.members[1]
		}
		c, err := connect(alive.kubeconfig)
		if err != nil {
			return err
		}
		began := time.Now()
		leader.end(syscall.SIGKILL)
		name := fmt.Sprintf("after-%d-%d", i, began.UnixNano())
		var last error
		if err := until(ctx, 2*time.Minute, "a ReplicaSet", func() bool {
			last = replicated(ctx, c, name)
			return last == nil
		}); err != nil {
			return fmt.Errorf("%w: %w", err, last)
		}
		t.times = append(t.times, time.Since(began))
		progress("%s: controllers act %d ms after the end of %s", m.side.name(), time.Since(began).Milliseconds(), leader.name)
		if err := m.recover(ctx, leader); err != nil {
			return err
		}
	}
	slices.Sort(t.times)
	m.f["controllers3"] = figure{value: t.at(99).Seconds(), note: fmt.Sprintf("p50 %.2f s", t.at(50).Seconds())}
	return nil
}

// replicated makes a Deployment unless it is there, and reports the lack of its ReplicaSet as an
// error.
func replicated(ctx context.Context, c *clients, name string) error {
	ctx, stop := context.WithTimeout(ctx, patience3)
	defer stop()
	labels := map[string]string{"app": name}
	if _, err := c.set.AppsV1().Deployments(space).Get(ctx, name, metav1.GetOptions{}); err != nil {
		none := int32(0)
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{Replicas: &none, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: schedulablePod(0).Spec}}}
		if _, err := c.set.AppsV1().Deployments(space).Create(ctx, d, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	sets, err := c.set.AppsV1().ReplicaSets(space).List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
	if err != nil {
		return err
	}
	if len(sets.Items) == 0 {
		return fmt.Errorf("%s has no ReplicaSet", name)
	}
	return nil
}
