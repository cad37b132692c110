package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	access "github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/hollow"
)

const (
	copies   = "copies" // a ReplicaSet
	ordinals = "ordinals"
	replicas = 3 // of each
)

// crew is the part of a history that controllers, scheduler and hollow nodes make.
type crew struct {
	c         *cluster
	namespace string
	pods      *record // of watches alone, one on each server
}

// hollowNodes runs a hollow node on a client of each of the first two servers until ctx ends.
func (c *cluster) hollowNodes(ctx context.Context, running *sync.WaitGroup) error {
	for i, m := range c.members[:2] {
		in, err := access.Remote(m.config("hollow", 2))
		if err != nil {
			return err
		}
		config := hollow.Config{Client: in, Address: fmt.Sprintf("10.88.1.%d", i+1), PodRange: netip.MustParsePrefix(fmt.Sprintf("10.42.%d.0/24", i+100)),
			RenewEvery: 2 * time.Second, Log: slog.New(slog.DiscardHandler)}
		config.Node.Name = fmt.Sprintf("hollow-%d", i+1)
		running.Go(func() {
			for ctx.Err() == nil {
				if err := hollow.Run(ctx, config); err != nil {
					pause(ctx)
				}
			}
		})
	}
	return nil
}

// podKind has pods for watches: the value is the node, the status the owner.
var podKind = kind{name: "pods", group: "/api/v1", open: func(cfg *rest.Config, namespace string, _ int) (api, error) {
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	return client[*corev1.Pod, *corev1.PodList]{
		objects: c.CoreV1().Pods(namespace),
		itemOf: func(p *corev1.Pod) (item, error) {
			i := metadata(p)
			i.value = p.Spec.NodeName
			if owner := metav1.GetControllerOf(p); owner != nil {
				i.status = owner.Name
			}
			return i, nil
		},
	}, nil
}}

// startCrew makes the workloads of a history and the watches of their pods.
func (c *cluster) startCrew(t *testing.T, namespace string, d *diary, watching context.Context, watchers *sync.WaitGroup) (*crew, error) {
	w := &crew{c: c, namespace: namespace, pods: &record{kind: &podKind, h: &history{began: d.began, several: true}}}
	random := rand.New(rand.NewPCG(0, 0))
	for i, m := range c.members {
		where := func(client string, version int) (*rest.Config, error) { return m.config(client, version), nil }
		f := &follower{name: fmt.Sprintf("pods-of-%s", m.host.name), h: w.pods.h, begins: beginning(i % 2), random: random, api: w.pods.open(t, where, namespace, "pods", random)}
		w.pods.plain = append(w.pods.plain, f)
		watchers.Go(func() { f.follow(watching) })
	}
	if err := w.pods.waitWatched(); err != nil {
		return nil, err
	}
	access, err := kubernetes.NewForConfig(c.members[0].config("workloads", 2))
	if err != nil {
		return nil, err
	}
	n, grace := int32(replicas), int64(1)
	labels := func(name string) map[string]string { return map[string]string{"app": name} }
	template := func(name string) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels(name)}, Spec: corev1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{Name: "c", Image: "chaos.example.com/c"}}}}
	}
	_, err = access.AppsV1().ReplicaSets(namespace).Create(t.Context(), &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: copies},
		Spec: appsv1.ReplicaSetSpec{Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: labels(copies)}, Template: template(copies)}}, metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	_, err = access.AppsV1().StatefulSets(namespace).Create(t.Context(), &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: ordinals},
		Spec: appsv1.StatefulSetSpec{Replicas: &n, ServiceName: ordinals, Selector: &metav1.LabelSelector{MatchLabels: labels(ordinals)}, Template: template(ordinals)}}, metav1.CreateOptions{})
	return w, err
}

// churn deletes pods, gracefully, through all servers in turn.
func (w *crew) churn(ctx context.Context, random *rand.Rand) {
	var clients []*kubernetes.Clientset
	for _, m := range w.c.members {
		access, err := kubernetes.NewForConfig(m.config("churn", 2))
		if err != nil {
			w.c.t.Error(err)
			return
		}
		clients = append(clients, access)
	}
	for i := 0; ctx.Err() == nil; i++ {
		pods := clients[i%len(clients)].CoreV1().Pods(w.namespace)
		limited, cancel := request(ctx)
		if list, err := pods.List(limited, metav1.ListOptions{}); err == nil && len(list.Items) > 0 {
			_ = pods.Delete(limited, list.Items[random.IntN(len(list.Items))].Name, metav1.DeleteOptions{})
		}
		cancel()
		select {
		case <-ctx.Done():
		case <-time.After(2 * calm):
		}
	}
}

// finish waits until all replicas are ready and all watches have seen them.
func (w *crew) finish(ctx context.Context) error {
	access, err := kubernetes.NewForConfig(w.c.members[len(w.c.members)-1].config("finish", 2))
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(eventually); ; time.Sleep(50 * time.Millisecond) {
		err := w.complete(ctx, access)
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the cluster has not healed: %w", err)
		}
	}
}

func (w *crew) complete(ctx context.Context, access *kubernetes.Clientset) error {
	ctx, cancel := request(ctx)
	defer cancel()
	list, err := access.CoreV1().Pods(w.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	ready := map[string]int{}
	for i := range list.Items {
		p := &list.Items[i]
		for _, condition := range p.Status.Conditions {
			if owner := metav1.GetControllerOf(p); owner != nil && p.DeletionTimestamp == nil && condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
				ready[owner.Name]++
			}
		}
	}
	if ready[copies] != replicas || ready[ordinals] != replicas {
		return fmt.Errorf("of %d replicas each, these are ready: %v", replicas, ready)
	}
	for i := range list.Items {
		revision, _ := strconv.ParseInt(list.Items[i].ResourceVersion, 10, 64)
		w.pods.h.last = max(w.pods.h.last, revision)
	}
	for _, f := range w.pods.plain {
		if f.at.Load() < w.pods.h.last {
			return fmt.Errorf("watch %s is at %d, not at %d", f.name, f.at.Load(), w.pods.h.last)
		}
	}
	return nil
}

// check compares the watches with each other and checks the invariants of the controllers. whole
// reports that the watches saw all changes; otherwise the invariants cannot be checked.
func (w *crew) check() (whole bool, err error) {
	h := w.pods.h
	for _, f := range w.pods.plain {
		if f.err != nil {
			return false, fmt.Errorf("watch %s: %w", f.name, f.err)
		}
	}
	if err := h.checkAnswers(); err != nil {
		return false, err
	}
	l, err := union(w.pods.plain)
	if err != nil {
		return false, err
	}
	for _, f := range w.pods.plain {
		for _, s := range f.spans {
			if err := s.checkWhole(l); err != nil {
				return false, fmt.Errorf("watch %s: %w", f.name, err)
			}
		}
	}
	if len(l.spans) == 0 || len(l.spans[0].listed) > 0 || l.reaches(l.spans[0].from) < h.last {
		return false, nil
	}
	return true, checkPods(l.changes)
}

// checkPods checks the changes of all pods of a namespace, from its begin, for the acts of a second
// controller or scheduler.
func checkPods(changes []change) error {
	alive := map[string]item{}
	for _, c := range changes {
		old, existed := alive[c.item.name]
		switch {
		case existed && c.kind == watch.Added, existed && old.uid != c.item.uid:
			return fmt.Errorf("pod %s at %d: a second one, with UID %s beside %s", c.item.name, c.revision, c.item.uid, old.uid)
		case existed && old.value != "" && old.value != c.item.value:
			return fmt.Errorf("pod %s at %d: bound to %s and then to %q", c.item.name, c.revision, old.value, c.item.value)
		case c.kind == watch.Deleted && old.value != "" && !old.deleting:
			return fmt.Errorf("pod %s at %d: gone although its node %s has not ended it", c.item.name, c.revision, old.value)
		}
		if c.kind == watch.Deleted {
			delete(alive, c.item.name)
			continue
		}
		alive[c.item.name] = c.item
		if n := living(alive, c.item.status); n > replicas {
			return fmt.Errorf("pod %s at %d: %s has %d living pods for %d replicas", c.item.name, c.revision, c.item.status, n, replicas)
		}
		if suffix, ok := strings.CutPrefix(c.item.name, ordinals+"-"); ok {
			if i, err := strconv.Atoi(suffix); err != nil || i >= replicas {
				return errors.Join(fmt.Errorf("pod %s at %d: no such ordinal", c.item.name, c.revision), err)
			}
		}
	}
	return nil
}

// living returns the number of an owner's pods that are not being deleted.
func living(pods map[string]item, owner string) (n int) {
	for _, p := range pods {
		if p.status == owner && !p.deleting {
			n++
		}
	}
	return n
}
