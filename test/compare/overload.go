package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// offered is the number of concurrent requests at full scale: ten times the seats that either side
// has by default (600).
const offered = 6000

// flood counts the results of the excess requests.
type flood struct {
	clients                       int
	served, refused, late, broken atomic.Int64
	withoutRetryAfter             atomic.Int64 // refused without Retry-After
}

func (fl *flood) String() string {
	served, refused, late := fl.served.Load(), fl.refused.Load(), fl.late.Load()
	all := max(1, served+refused+late+fl.broken.Load())
	return fmt.Sprintf("%d clients, %d requests: %.1f %% refused with 429 (%d without Retry-After), %d served, %d timed out, %d without an answer",
		fl.clients, all, 100*float64(refused)/float64(all), fl.withoutRetryAfter.Load(), served, late, fl.broken.Load())
}

// run lists pods over and over on one connection, and waits when told to, as client-go does.
func (fl *flood) run(ctx context.Context, c *clients) {
	var w *wire
	for ctx.Err() == nil {
		if w == nil {
			var err error
			if w, err = c.dial(); err != nil {
				if ctx.Err() == nil {
					fl.broken.Add(1)
				}
				_ = pause(ctx, time.Second)
				continue
			}
			stop := context.AfterFunc(ctx, func() { w.conn.Close() })
			defer stop()
			defer w.conn.Close()
		}
		_, err := w.do("GET", podsPath, "", protobufType, nil)
		var answer *answerError
		switch {
		case ctx.Err() != nil:
		case err == nil:
			fl.served.Add(1)
		case !errors.As(err, &answer):
			fl.broken.Add(1)
			w = nil
		case answer.code == http.StatusTooManyRequests:
			fl.refused.Add(1)
			if w.later == 0 {
				fl.withoutRetryAfter.Add(1)
			}
			_ = pause(ctx, max(w.later, time.Second))
		default:
			fl.late.Add(1)
		}
		if w != nil && w.last {
			w.conn.Close()
			w = nil
		}
	}
}

// overload measures the duration of updates of a node's lease and of the health check while ten
// times as many lists are requested as there are seats. It also measures the time until the same
// client is served as before after the load.
func overload(ctx context.Context, c *clients, scale float64, f figures) error {
	if err := c.fill(ctx, 5000); err != nil {
		return err
	}
	crowd, err := c.as(ctx, "flood")
	if err != nil {
		return err
	}
	lease, err := c.nodeLeases(ctx)
	if err != nil {
		return err
	}
	flooding, stop := context.WithCancel(ctx)
	defer stop()
	fl := &flood{clients: max(1, int(offered*min(1, scale)))}
	var wg sync.WaitGroup
	for range fl.clients {
		wg.Go(func() { fl.run(flooding, crowd) })
	}
	_ = pause(ctx, 15*time.Second) // as long as it takes them to connect
	times := map[string]timing{}
	var both sync.WaitGroup
	var mu sync.Mutex
	for key, ask := range map[string]func(w *wire, i int) error{"overload-lease": lease, "overload-livez": livez} {
		both.Go(func() {
			t := timed(ctx, c, max(1, int(1000*scale)), 20*time.Millisecond, ask)
			mu.Lock()
			defer mu.Unlock()
			times[key] = t
		})
	}
	both.Wait()
	story := fl.String()
	stop()
	over := time.Now()
	back, err := crowd.served(ctx)
	wg.Wait()
	if err != nil {
		return err
	}
	for key, t := range times {
		f[key] = t.figure()
	}
	f["overload-normal"] = figure{value: back.Sub(over).Seconds(), note: story}
	return nil
}

func livez(w *wire, _ int) error {
	_, err := w.do("GET", "/livez", "", jsonType, nil)
	return err
}

// nodeLeases creates the leases of some nodes, and returns a function that updates one of them as
// its node.
func (c *clients) nodeLeases(ctx context.Context) (update func(w *wire, i int) error, err error) {
	const nodes = 250
	name := func(i int) string { return fmt.Sprintf("overloaded-%03d", i%nodes) }
	_, err = c.set.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: corev1.NamespaceNodeLease}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	leases, seconds := c.set.CoordinationV1().Leases(corev1.NamespaceNodeLease), int32(40)
	for i := range nodes {
		holder := name(i)
		made := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: holder}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds}}
		if _, err := leases.Create(ctx, made, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	return func(w *wire, i int) error {
		w.extra = "Impersonate-User: system:node:" + name(i) + "\r\nImpersonate-Group: system:nodes\r\n"
		body := fmt.Sprintf(`{"spec":{"renewTime":"%s"}}`, time.Now().UTC().Format(metav1.RFC3339Micro))
		_, err := w.do("PATCH", "/apis/coordination.k8s.io/v1/namespaces/"+corev1.NamespaceNodeLease+"/leases/"+name(i), mergePatch, jsonType, []byte(body))
		return err
	}, nil
}

// served waits until ten requests in a row succeed, and returns the time of the first one.
func (c *clients) served(ctx context.Context) (since time.Time, err error) {
	row := 0
	for giveUp := time.Now().Add(2 * time.Minute); row < 10; {
		if time.Now().After(giveUp) {
			return since, errors.New("not served as before after two minutes")
		}
		if err := ctx.Err(); err != nil {
			return since, err
		}
		w, err := c.dial()
		if err == nil {
			_, err = w.do("GET", configMaps+"?limit=1", "", protobufType, nil)
			w.conn.Close()
		}
		if err != nil {
			row = 0
			_ = pause(ctx, 10*time.Millisecond)
			continue
		}
		if row++; row == 1 {
			since = time.Now()
		}
	}
	return since, nil
}

// timing holds the durations of requests, including failed ones.
type timing struct {
	times  []time.Duration // sorted
	failed int
	err    error // the first error
}

// figure returns the p99 in milliseconds. If requests failed there is none: a request that is
// refused at once would count as a quick one.
func (t *timing) figure() figure {
	p99, highest := t.at(99), t.at(100).Round(time.Millisecond)
	if t.failed > 0 {
		return figure{note: fmt.Sprintf("%d of %d failed: %v; p99 of all %s, highest %s", t.failed, len(t.times), t.err, p99.Round(time.Millisecond), highest)}
	}
	return figure{value: float64(p99.Microseconds()) / 1000, note: fmt.Sprintf("highest %s", highest)}
}

// at returns a percentile, or 0 if nothing was timed.
func (t *timing) at(percent int) time.Duration {
	if len(t.times) == 0 {
		return 0
	}
	return t.times[min(len(t.times)-1, len(t.times)*percent/100)]
}

// timed calls do n times, one call per tick whether the previous ones have ended or not, on up to
// 64 connections. It stops when the context ends.
func timed(ctx context.Context, c *clients, n int, every time.Duration, do func(w *wire, i int) error) timing {
	t := timing{times: make([]time.Duration, n)}
	wires := make(chan *wire, 64)
	for range cap(wires) {
		w, err := c.dial()
		if err != nil {
			w = nil // dial again when needed
		}
		wires <- w
	}
	var mu sync.Mutex // guards t.failed and t.err
	var wg sync.WaitGroup
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	c.meter.begin(n)
	sent := 0
	for i := range n {
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			break
		}
		sent++
		due := time.Now()
		wg.Go(func() {
			w := <-wires
			var err error
			if w == nil {
				w, err = c.dial()
			}
			if err == nil {
				err = do(w, i)
			}
			t.times[i] = time.Since(due)
			c.meter.add()
			if err != nil {
				mu.Lock()
				if t.failed++; t.err == nil {
					t.err = err
				}
				mu.Unlock()
				if w != nil {
					w.conn.Close()
				}
				w = nil
			}
			wires <- w
		})
	}
	wg.Wait()
	for range cap(wires) {
		if w := <-wires; w != nil {
			w.conn.Close()
		}
	}
	t.times = t.times[:sent]
	slices.Sort(t.times)
	return t
}

// answerError is an unsuccessful answer.
type answerError struct {
	method, path string
	code         int
	text         []byte
}

func (e *answerError) Error() string {
	return fmt.Sprintf("%s %s: %d: %s", e.method, e.path, e.code, e.text)
}

// refusal reads an unsuccessful answer.
func refusal(method, path string, code int, content io.Reader) error {
	text, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	return &answerError{method, path, code, text}
}
