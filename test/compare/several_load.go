package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// all returns the processes of the control plane.
func (c *cluster) all() []*process {
	ps := slices.Clone(c.control)
	for _, m := range c.members {
		ps = append(ps, m.processes...)
	}
	return ps
}

// memberMemory measures the memory of the idle members: their mean, with each one in the note.
func memberMemory(ctx context.Context, m *measurement) error {
	if err := pause(ctx, 20*time.Second); err != nil {
		return err
	}
	var anon, rss float64
	var each []string
	for _, one := range m.c.members {
		a, r := memory(tree(one.processes))
		anon, rss = anon+a, rss+r
		each = append(each, fmt.Sprintf("%.0f", a))
	}
	n := float64(len(m.c.members))
	m.f["member-anon"] = figure{value: anon / n, note: fmt.Sprintf("each: %v MB", each)}
	m.f["member-rss"] = figure{value: rss / n}
	return nil
}

// toEach returns clients of each member.
func (c *cluster) toEach() ([]*clients, error) {
	var all []*clients
	for _, m := range c.members {
		one, err := connect(m.kubeconfig)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// spread calls do n times at each member at once, from a third of inFlight connections each. It
// returns the calls per second and their durations.
func spread(ctx context.Context, members []*clients, n, inFlight int, do func(w *wire, i int) error) (float64, timing, error) {
	t := timing{times: make([]time.Duration, n*len(members))}
	errs := make([]error, len(members))
	var group sync.WaitGroup
	began := time.Now()
	for at, c := range members {
		group.Go(func() {
			_, errs[at] = c.each(ctx, n, inFlight/len(members), func(w *wire, i int) error {
				i = i*len(members) + at
				asked := time.Now()
				err := do(w, i)
				t.times[i] = time.Since(asked)
				return err
			})
		})
	}
	group.Wait()
	took := time.Since(began).Seconds()
	for _, err := range errs {
		if err != nil {
			return 0, t, err
		}
	}
	slices.Sort(t.times)
	return float64(len(t.times)) / took, t, ctx.Err()
}

// requestsToSeveral measures creates and linearizable gets at all members at once, 63 in flight.
func requestsToSeveral(ctx context.Context, m *measurement) error {
	members, err := m.c.toEach()
	if err != nil {
		return err
	}
	const inFlight = 63
	n := max(inFlight, int(2000*m.o.scale))
	for _, load := range []struct {
		key string
		n   int
		do  func(w *wire, i int) error
	}{
		{"create3", n, func(w *wire, i int) error { return w.create(configMaps, configMap(i), "ConfigMap") }},
		{"get3", 3 * n, func(w *wire, i int) error {
			_, err := w.do("GET", configMaps+"/"+configMapName(i%n), "", protobufType, nil)
			return err
		}},
	} {
		spent := stopwatch(m.c.all())
		rate, t, err := spread(ctx, members, load.n, inFlight, load.do)
		if err != nil {
			return fmt.Errorf("%s: %w", load.key, err)
		}
		serving, _ := spent()
		note := fmt.Sprintf("CPU of all members: %.0f µs", serving.Seconds()*1e6/float64(len(t.times)))
		m.f[load.key] = figure{value: rate, note: note}
		m.f[load.key+"-p99"] = milliseconds(t)
		progress("%s: %.0f /s, %s; p50 %s, p99 %s", load.key, rate, note, t.at(50).Round(time.Microsecond), t.at(99).Round(time.Microsecond))
	}
	return nil
}

// milliseconds is a p99, with the p50 in the note.
func milliseconds(t timing) figure {
	return figure{value: float64(t.at(99).Microseconds()) / 1000, note: fmt.Sprintf("p50 %.2f ms", float64(t.at(50).Microseconds())/1000)}
}

// watchSeveral measures the time from the sending of a write at one member to its event at every
// member, with a write each 20 ms.
func watchSeveral(ctx context.Context, m *measurement) error {
	members, err := m.c.toEach()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	n := max(50, int(1000*m.o.scale))
	var mu sync.Mutex // guards sent and t
	sent, t := map[string]time.Time{}, timing{}
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	for _, c := range members {
		list, err := c.set.CoreV1().ConfigMaps(space).List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil {
			return err
		}
		w, err := c.set.CoreV1().ConfigMaps(space).Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
		if err != nil {
			return err
		}
		context.AfterFunc(ctx, w.Stop)
		group.Go(func() {
			for e := range w.ResultChan() {
				now := time.Now()
				if object, ok := e.Object.(*corev1.ConfigMap); ok {
					mu.Lock()
					if at, ours := sent[object.Name]; ours {
						t.times = append(t.times, now.Sub(at))
					}
					mu.Unlock()
				}
			}
		})
	}
	for i := range n {
		object := configMap(i)
		object.Name = fmt.Sprintf("watched-%06d", i)
		mu.Lock()
		sent[object.Name] = time.Now()
		mu.Unlock()
		if _, err := members[i%len(members)].set.CoreV1().ConfigMaps(space).Create(ctx, object, metav1.CreateOptions{}); err != nil {
			return err
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
	arrived := func() int { mu.Lock(); defer mu.Unlock(); return len(t.times) }
	if err := until(ctx, 10*time.Second, "all events", func() bool { return arrived() == n*len(members) }); err != nil {
		return fmt.Errorf("%w (%d of %d)", err, arrived(), n*len(members))
	}
	slices.Sort(t.times)
	m.f["watch3-p99"] = milliseconds(t)
	return nil
}
