package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// heal waits until each server is ready, reads and writes, once all faults are taken back. The
// diary tells how long each of it takes, with the last error before.
func (c *cluster) heal(ctx context.Context, namespace string, d *diary) error {
	var all sync.WaitGroup
	errs := make([]error, 3*len(c.members))
	began := time.Now()
	for i, m := range c.members {
		read, write, err := m.probes(namespace)
		if err != nil {
			return err
		}
		for j, probe := range []struct {
			name string
			once func(context.Context) error
		}{{"reads", read}, {"writes", write}} {
			all.Go(func() { errs[3*i+j] = m.awaitSuccess(ctx, began, probe.name, probe.once, d) })
		}
		all.Go(func() { errs[3*i+2] = m.waitReady(eventually) })
	}
	all.Wait()
	d.note("all servers are ready")
	return errors.Join(errs...)
}

// probes returns one read and one write at this server. The write changes nothing that a history
// watches.
func (m *member) probes(namespace string) (read, write func(context.Context) error, err error) {
	client, err := kubernetes.NewForConfig(m.config("prober", 1))
	if err != nil {
		return nil, nil, err
	}
	read = func(ctx context.Context) error {
		_, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
		return err
	}
	write = func(ctx context.Context) error {
		o := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-"}}
		_, err := client.CoordinationV1().Leases(namespace).Create(ctx, o, metav1.CreateOptions{})
		return err
	}
	return read, write, nil
}

// awaitSuccess repeats a request until it succeeds.
func (m *member) awaitSuccess(ctx context.Context, began time.Time, name string, once func(context.Context) error, d *diary) error {
	var last error
	var at time.Time
	for deadline := time.Now().Add(eventually); ; time.Sleep(20 * time.Millisecond) {
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := once(limited)
		cancel()
		if err == nil {
			if last != nil {
				d.note("%s %s %.1f s after the faults; %.1f s after them: %v", m.host.name, name, time.Since(began).Seconds(), at.Sub(began).Seconds(), last)
			}
			return nil
		}
		last, at = err, time.Now()
		if time.Now().After(deadline) {
			return fmt.Errorf("%s: no success of %s after %v: %w", m.host.name, name, eventually, err)
		}
	}
}
