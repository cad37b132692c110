package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// workload is one of the loads of scheduler_perf. Its steps run one after the other on a control
// plane of its own. The sizes are about a fifth of scheduler_perf's largest, so that all of them
// take half an hour on two processors; -scale changes them.
type workload struct {
	name, what string
	target     float64 // wanted ratio of the rates; 0 if the load itself bounds both sides
	steps      []step
}

// step is one action of a workload.
type step interface {
	run(ctx context.Context, s *stage) error
}

// stage is the running control plane of a workload.
type stage struct {
	*clients
	o              *options
	side, workload string
	scale          float64
	control        []*process
	bindings       *bindings
	beside         sync.WaitGroup // churn and deletions
	made           map[string]int // number of objects by the prefix of their names
	out            *outcome
}

// inFlight is the number of concurrent requests of the load.
const inFlight = 64

func (s *stage) run(ctx context.Context, steps []step) error {
	ctx, cancel := context.WithCancel(ctx)
	defer s.beside.Wait()
	defer cancel()
	s.made = map[string]int{}
	s.beside.Go(func() { s.bindings.follow(ctx, s.clients) })
	for i, step := range steps {
		if err := step.run(ctx, s); err != nil {
			return fmt.Errorf("step %d, %T: %w", i+1, step, err)
		}
	}
	return nil
}

func (s *stage) scaled(n int) int { return max(1, int(math.Round(float64(n)*s.scale))) }

// next returns the first unused number for names with a prefix, and reserves n numbers.
func (s *stage) next(prefix string, n int) int {
	first := s.made[prefix]
	s.made[prefix] += n
	return first
}

// createNodes creates nodes without agents, and waits until they accept pods.
type createNodes struct {
	count  int
	prefix string // of names; "hollow" by default
	// change makes a node different from the plain one.
	change func(i int, n *corev1.Node)
	// also are further objects for each node.
	also func(i int, node string) []object
	// exact means that the scale does not change the count.
	exact bool
}

func (c createNodes) run(ctx context.Context, s *stage) error {
	if err := c.make(ctx, s); err != nil {
		return err
	}
	return s.untilNodesAccept(ctx)
}

func (c createNodes) make(ctx context.Context, s *stage) error {
	n, prefix := s.scaled(c.count), c.prefix
	if c.exact {
		n = c.count
	}
	if prefix == "" {
		prefix = "hollow"
	}
	first := s.next(prefix, n)
	_, err := s.each(ctx, n, inFlight, func(w *wire, i int) error {
		node := hollowNode(fmt.Sprintf("%s-%d", prefix, first+i))
		if c.change != nil {
			c.change(i, node)
		}
		if err := w.create("/api/v1/nodes", node, "Node"); err != nil {
			return err
		}
		if c.also == nil {
			return nil
		}
		return w.postAll(c.also(i, node.Name))
	})
	return err
}

// untilNodesAccept waits until no node has a taint of the node lifecycle controller.
func (s *stage) untilNodesAccept(ctx context.Context) error {
	for {
		list, err := s.set.CoreV1().Nodes().List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return fmt.Errorf("nodes without taints: %w", err)
		}
		tainted := 0
		for i := range list.Items {
			for _, taint := range list.Items[i].Spec.Taints {
				if strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
					tainted++
				}
			}
		}
		if tainted == 0 && len(list.Items) > 0 {
			return nil
		}
		if err := pause(ctx, 100*time.Millisecond+time.Duration(len(list.Items))*50*time.Microsecond); err != nil {
			return fmt.Errorf("%d nodes still have taints: %w", tainted, err)
		}
	}
}

// createNamespaces creates namespaces PREFIX-0, PREFIX-1 and so on.
type createNamespaces struct {
	prefix string
	count  int // not scaled
	labels map[string]string
}

func (c createNamespaces) run(ctx context.Context, s *stage) error {
	for i := range c.count {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", c.prefix, i), Labels: c.labels}}
		if _, err := s.set.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return err
		}
		// Pods are admitted once the namespace has its service account.
		if err := until(ctx, 30*time.Second, "service account of "+ns.Name, func() bool {
			_, err := s.set.CoreV1().ServiceAccounts(ns.Name).Get(ctx, "default", metav1.GetOptions{})
			return err == nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// createObjects creates other objects.
type createObjects struct {
	count   int // scaled; 0 means one
	objects func(i int) []object
}

func (c createObjects) run(ctx context.Context, s *stage) error {
	n := 1
	if c.count > 0 {
		n = s.scaled(c.count)
	}
	_, err := s.each(ctx, n, min(n, inFlight), func(w *wire, i int) error { return w.postAll(c.objects(i)) })
	return err
}

// createPods creates pods and waits until all are bound.
type createPods struct {
	group string // prefix of their names
	count int
	// namespace is the default namespace of the load if it is empty. With several namespaces the
	// pods are in NAMESPACE-0, NAMESPACE-1 and so on.
	namespace string
	several   int
	pod       func(i int, p *corev1.Pod)
	// volume makes the objects of a pod's volume, which are created before all pods.
	volume func(i int, p *corev1.Pod) []object
	// unbound means that the pods are not expected to be bound.
	unbound bool
	// measured means that this step gives the workload's figures.
	measured bool
}

func (c createPods) run(ctx context.Context, s *stage) error {
	n := s.scaled(c.count)
	g := s.bindings.group(c.group, n)
	pods := make([]*corev1.Pod, n)
	for i := range pods {
		pods[i] = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: g.podName(i), Namespace: c.in(i)}}
		c.pod(i, pods[i])
	}
	if c.volume != nil {
		if _, err := s.each(ctx, n, inFlight, func(w *wire, i int) error { return w.postAll(c.volume(i, pods[i])) }); err != nil {
			return fmt.Errorf("volumes: %w", err)
		}
		if err := s.untilClaimsBound(ctx, c.in(0)); err != nil {
			return err
		}
	}
	create := func() error {
		_, err := s.each(ctx, n, inFlight, func(w *wire, i int) error {
			g.sent[i] = time.Since(g.began)
			return w.create(podsOf(pods[i].Namespace), pods[i], "Pod")
		})
		if err != nil || c.unbound {
			return err
		}
		return g.wait(ctx)
	}
	if !c.measured {
		if err := create(); err != nil {
			_, _, left := s.bindings.times(g)
			return fmt.Errorf("%d of %d pods are not bound: %w", left, n, err)
		}
		return nil
	}
	return s.measure(ctx, g, create)
}

func (c createPods) in(i int) string {
	switch {
	case c.several > 0:
		return fmt.Sprintf("%s-%d", c.namespace, i%c.several)
	case c.namespace != "":
		return c.namespace
	}
	return space
}

// unblock creates nodes for the pods of a group that wait for them. It gives the workload's
// figures.
type unblock struct {
	group string
	nodes createNodes
}

func (u unblock) run(ctx context.Context, s *stage) error {
	g := s.bindings.find(u.group)
	for i := range g.sent {
		g.sent[i] = time.Since(g.began)
	}
	return s.measure(ctx, g, func() error {
		if err := u.nodes.make(ctx, s); err != nil {
			return err
		}
		return g.wait(ctx)
	})
}

// measure takes the figures of the pods that create makes. If the time is up, the figures are those
// of the pods that were bound.
func (s *stage) measure(ctx context.Context, g *group, create func() error) error {
	kept, err := s.o.keepProfiles(ctx, s.clients, s.side+"-"+s.workload)
	if err != nil {
		return err
	}
	spent := stopwatchEach(s.control)
	err = create()
	sent, bound, left := s.bindings.times(g)
	s.out.summarize(sent, bound)
	s.out.anon, s.out.rss = memory(tree(s.control))
	if n := float64(len(bound) - left); n > 0 {
		s.out.spent, s.out.loading = spent(n)
		for _, each := range s.out.spent {
			s.out.cpu += each.cpu
		}
	}
	if left > 0 {
		s.out.note = fmt.Sprintf("%d of %d pods were not bound", left, len(bound))
	}
	return errors.Join(err, kept())
}

// stopwatchEach returns a function that returns the CPU time that each process, and this one, have
// used since: in ms, divided by n.
func stopwatchEach(control []*process) func(n float64) (each []spent, loading float64) {
	var stops []func() (time.Duration, time.Duration)
	for _, p := range control {
		stops = append(stops, stopwatch([]*process{p}))
	}
	return func(n float64) (each []spent, loading float64) {
		for i, p := range control {
			serving, load := stops[i]()
			each, loading = append(each, spent{p.name, ms(serving) / n}), ms(load)/n
		}
		return each, loading
	}
}

// untilClaimsBound waits until the volume controller has bound all claims that name a volume.
func (s *stage) untilClaimsBound(ctx context.Context, namespace string) error {
	for {
		list, err := s.set.CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		if err != nil {
			return err
		}
		left := 0
		for i := range list.Items {
			if list.Items[i].Spec.VolumeName != "" && list.Items[i].Status.Phase != corev1.ClaimBound {
				left++
			}
		}
		if left == 0 {
			return nil
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return fmt.Errorf("%d claims are not bound: %w", left, err)
		}
	}
}

// untilTried waits until the scheduler has refused each pod of a namespace once.
type untilTried struct{ namespace string }

func (u untilTried) run(ctx context.Context, s *stage) error {
	in := u.namespace
	if in == "" {
		in = space
	}
	for {
		list, err := s.set.CoreV1().Pods(in).List(ctx, metav1.ListOptions{ResourceVersion: "0", FieldSelector: "spec.nodeName="})
		if err != nil {
			return err
		}
		left := 0
		for i := range list.Items {
			if !refused(&list.Items[i]) {
				left++
			}
		}
		if left == 0 && len(list.Items) > 0 {
			return nil
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return fmt.Errorf("%d pods were not tried: %w", left, err)
		}
	}
}

func refused(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return true
		}
	}
	return false
}

// deletePods deletes the pods of a group one after the other, beside the next steps.
type deletePods struct {
	group     string
	namespace string
	perSecond int
}

func (d deletePods) run(ctx context.Context, s *stage) error {
	g := s.bindings.find(d.group)
	w, err := s.dial()
	if err != nil {
		return err
	}
	path := podsPath
	if d.namespace != "" {
		path = podsOf(d.namespace)
	}
	s.beside.Go(func() {
		defer w.conn.Close()
		for i := 0; i < len(g.bound) && pause(ctx, time.Second/time.Duration(d.perSecond)) == nil; i++ {
			if _, err := w.do("DELETE", path+"/"+g.podName(i), "", protobufType, nil); err != nil {
				progress("%s: %s: delete: %v", s.side, s.workload, err)
				return
			}
		}
	})
	return nil
}

// churn makes objects beside the next steps, at each interval one of each kind.
type churn struct {
	every   time.Duration
	objects func(i int) []object
	// replaced means that each object is deleted before the next one is made.
	replaced bool
}

func (c churn) run(ctx context.Context, s *stage) error {
	w, err := s.dial()
	if err != nil {
		return err
	}
	s.beside.Go(func() {
		defer w.conn.Close()
		var last []object
		for i := 0; pause(ctx, c.every) == nil; i++ {
			for _, o := range last {
				if err := w.remove(o); err != nil && !isGone(err) {
					progress("%s: %s: churn: %v", s.side, s.workload, err)
				}
			}
			made := c.objects(i)
			if err := w.postAll(made); err != nil {
				progress("%s: %s: churn: %v", s.side, s.workload, err)
			}
			if c.replaced {
				last = made
			}
		}
	})
	return nil
}

func isGone(err error) bool {
	var answer *answerError
	return errors.As(err, &answer) && answer.code == http.StatusNotFound
}
