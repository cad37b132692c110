package node

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// TaintEviction deletes the pods of nodes with NoExecute taints: a pod that does not tolerate a
// taint at once, a pod that tolerates it for a time after its tolerationSeconds.
func TaintEviction(m *Metrics) controller.Starter {
	return controller.Starter{Name: "taint-eviction-controller", Account: "node-controller", Run: func(ctx context.Context, env controller.Env) error {
		return runTaintEviction(ctx, env, m)
	}}
}

type taintEviction struct {
	metrics *Metrics
	env     controller.Env
	pods    client.ViewOf[*corev1.Pod]
	nodes   client.ViewOf[*corev1.Node]
	now     func() time.Time
	// since is the start of a pod's current toleration. The only worker owns it.
	since map[types.UID]time.Time
	names map[controller.Key]types.UID
}

func runTaintEviction(ctx context.Context, env controller.Env, m *Metrics) error {
	pods, err := client.Open[*corev1.Pod](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open pods: %w", err)
	}
	nodes, err := client.Open[*corev1.Node](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open nodes: %w", err)
	}
	controller.IndexPodsByNode(pods)
	c := &taintEviction{metrics: m, env: env, pods: pods, nodes: nodes, now: time.Now, since: map[types.UID]time.Time{}, names: map[controller.Key]types.UID{}}
	loop := controller.Loop{
		Log:    env.Log,
		Queues: env.Queues,
		Name:   "taint-eviction-controller",
		Inputs: []controller.Input{
			controller.On(nodes, func(e client.TypedEvent[*corev1.Node]) []controller.Key {
				if e.Type == client.Deleted {
					return nil
				}
				var before []corev1.Taint
				if e.Type == client.Modified {
					before = noExecute(e.Old)
				}
				if equality.Semantic.DeepEqual(before, noExecute(e.Object)) {
					return nil
				}
				var keys []controller.Key
				for _, p := range controller.PodsOnNode(pods, e.Object.Name) {
					keys = append(keys, controller.KeyOf(p))
				}
				return keys
			}),
			controller.On(pods, func(e client.TypedEvent[*corev1.Pod]) []controller.Key {
				p := e.Object
				if e.Type == client.Modified && e.Old.Spec.NodeName == p.Spec.NodeName && len(e.Old.Spec.Tolerations) == len(p.Spec.Tolerations) {
					return nil
				}
				if e.Type != client.Deleted {
					if n, ok := nodes.Get("", p.Spec.NodeName); !ok || len(noExecute(n)) == 0 {
						return nil
					}
				}
				return []controller.Key{controller.KeyOf(p)}
			}),
		},
		Reconcile: c.reconcile, // one worker, which owns since
	}
	return loop.Run(ctx)
}

func noExecute(n *corev1.Node) []corev1.Taint {
	var out []corev1.Taint
	for _, t := range n.Spec.Taints {
		if t.Effect == corev1.TaintEffectNoExecute {
			out = append(out, t)
		}
	}
	return out
}

func (c *taintEviction) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	p, ok := c.pods.Get(key.Namespace, key.Name)
	if uid, known := c.names[key]; known && (!ok || p.UID != uid) {
		delete(c.since, uid)
		delete(c.names, key)
	}
	if !ok || p.DeletionTimestamp != nil || p.Spec.NodeName == "" {
		return controller.Result{}, nil
	}
	var taints []corev1.Taint
	if n, ok := c.nodes.Get("", p.Spec.NodeName); ok {
		taints = noExecute(n)
	}
	tolerated, limit := tolerates(p, taints)
	since, waiting := c.since[p.UID]
	if !tolerated {
		since = time.Time{} // an earlier toleration no longer counts
	}
	switch {
	case tolerated && limit < 0:
		if waiting {
			delete(c.since, p.UID)
			delete(c.names, key)
			c.env.Events.Eventf(p, nil, corev1.EventTypeNormal, "TaintManagerEviction", "CancelDeletion", "Cancelling deletion of Pod %s/%s", p.Namespace, p.Name)
		}
		return controller.Result{}, nil
	case tolerated:
		if !waiting {
			since = c.now()
			c.since[p.UID], c.names[key] = since, p.UID
		}
		if rest := since.Add(limit).Sub(c.now()); rest > 0 {
			return controller.Result{After: rest}, nil
		}
	}
	return controller.Result{}, c.evict(ctx, p, dueAt(taints, since, limit, c.now()))
}

// dueAt returns the time since which the eviction is due: the end of the toleration, or the time of
// the newest taint. The metric of eviction delays uses it.
func dueAt(taints []corev1.Taint, since time.Time, limit time.Duration, now time.Time) time.Time {
	if !since.IsZero() {
		return since.Add(max(limit, 0))
	}
	due := time.Time{}
	for i := range taints {
		if at := taints[i].TimeAdded; at != nil && at.After(due) && !at.After(now) {
			due = at.Time
		}
	}
	if due.IsZero() {
		return now
	}
	return due
}

// tolerates reports whether the pod tolerates all taints, and for how long; a limit below zero
// means forever.
func tolerates(p *corev1.Pod, taints []corev1.Taint) (ok bool, limit time.Duration) {
	limit = -1
	for i := range taints {
		found := false
		for j := range p.Spec.Tolerations {
			t := &p.Spec.Tolerations[j]
			if !t.ToleratesTaint(klog.Background(), &taints[i], false) {
				continue
			}
			found = true
			if t.TolerationSeconds != nil {
				if d := max(0, time.Duration(*t.TolerationSeconds)*time.Second); limit < 0 || d < limit {
					limit = d
				}
			}
		}
		if !found {
			return false, 0
		}
	}
	return true, limit
}

func (c *taintEviction) evict(ctx context.Context, p *corev1.Pod, due time.Time) error {
	c.env.Events.Eventf(p, nil, corev1.EventTypeNormal, "TaintManagerEviction", "Evict", "Marking for deletion Pod %s/%s", p.Namespace, p.Name)
	err := patchPodCondition(ctx, c.env.Client, p, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByTaintManager",
		Message: "Taint manager: deleting due to NoExecute taint", LastTransitionTime: metav1.NewTime(c.now()), ObservedGeneration: p.Generation,
	})
	if err == nil {
		err = client.Delete[*corev1.Pod](ctx, c.env.Client, p.Namespace, p.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("evict pod %s/%s from tainted node %s: %w", p.Namespace, p.Name, p.Spec.NodeName, err)
	}
	if err == nil {
		c.metrics.podDeletions.Inc()
		c.metrics.podDeletionTimes.Observe(c.now().Sub(due).Seconds())
	}
	delete(c.since, p.UID)
	delete(c.names, controller.KeyOf(p))
	return nil
}

// patchPodCondition sets one condition of a pod's status.
func patchPodCondition(ctx context.Context, c client.Interface, p *corev1.Pod, condition corev1.PodCondition) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": p.UID},
		"status":   map[string]any{"conditions": []corev1.PodCondition{condition}},
	})
	if err != nil {
		return err
	}
	_, err = client.Patch[*corev1.Pod](ctx, c, p.Namespace, p.Name, types.StrategicMergePatchType, patch, "status")
	return err
}
