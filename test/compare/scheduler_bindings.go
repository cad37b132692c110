package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// bindings records when pods were bound. A pod's name has its group and its number in it.
type bindings struct {
	mu     sync.Mutex
	groups map[string]*group
}

// group is the pods of one step.
type group struct {
	name  string
	began time.Time
	// sent and bound are times since began, by the pod's number; 0 if not yet. A pod's creator
	// writes sent; the mutex of bindings guards bound.
	sent, bound []time.Duration
	left        int
	all         chan struct{} // closed when all pods are bound
}

func newBindings() *bindings { return &bindings{groups: map[string]*group{}} }

func (b *bindings) group(name string, n int) *group {
	g := &group{name: name, began: time.Now(), sent: make([]time.Duration, n), bound: make([]time.Duration, n), left: n, all: make(chan struct{})}
	if n == 0 {
		close(g.all)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.groups[name] = g
	return g
}

func (g *group) podName(i int) string { return fmt.Sprintf("%s-%06d", g.name, i) }

func (b *bindings) find(name string) *group {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.groups[name]
}

// wait waits until all pods of the group are bound.
func (g *group) wait(ctx context.Context) error {
	select {
	case <-g.all:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// mark records that a pod is bound.
func (b *bindings) mark(name string) {
	cut := strings.LastIndexByte(name, '-')
	if cut < 0 {
		return
	}
	i, err := strconv.Atoi(name[cut+1:])
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.groups[name[:cut]]
	if err != nil || g == nil || i >= len(g.bound) || g.bound[i] != 0 {
		return
	}
	g.bound[i] = time.Since(g.began)
	if g.left--; g.left == 0 {
		close(g.all)
	}
}

// times returns copies of the group's times, and the number of its pods that are not bound.
func (b *bindings) times(g *group) (sent, bound []time.Duration, left int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append(sent, g.sent...), append(bound, g.bound...), g.left
}

// follow watches the bound pods of all namespaces until ctx ends. Server and load share the
// machine, so the selector keeps the events of other pods away.
func (b *bindings) follow(ctx context.Context, c *clients) {
	options := metav1.ListOptions{FieldSelector: "spec.nodeName!="}
	for ctx.Err() == nil {
		list, err := c.set.CoreV1().Pods("").List(ctx, options)
		if err != nil {
			_ = pause(ctx, 100*time.Millisecond)
			continue
		}
		for i := range list.Items {
			b.mark(list.Items[i].Name)
		}
		from := options
		from.ResourceVersion = list.ResourceVersion
		w, err := c.set.CoreV1().Pods("").Watch(ctx, from)
		if err != nil {
			continue
		}
		for e := range w.ResultChan() {
			if p, ok := e.Object.(*corev1.Pod); ok {
				b.mark(p.Name)
			}
		}
		w.Stop()
	}
}
