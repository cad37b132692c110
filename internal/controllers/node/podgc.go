package node

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// PodGC deletes pods that no other component deletes: pods of nodes that are gone, pods being
// deleted that never got a node, pods of nodes taken out of service, and the oldest ended pods
// beyond a limit.
var PodGC = controller.Starter{Name: "pod-garbage-collector-controller", Account: "pod-garbage-collector", Run: runPodGC}

// quarantine is the time a node has to be missing before its pods count as lost.
const quarantine = 40 * time.Second

// The types of the loop's keys: "node" with a node's name, "ended" for the limit of ended pods,
// "pod" with NAMESPACE/NAME.
const (
	keyNode  = "node"
	keyEnded = "ended"
	keyPod   = "pod"
)

type podGC struct {
	env   controller.Env
	pods  client.ViewOf[*corev1.Pod]
	nodes client.ViewOf[*corev1.Node]
	// missing nodes that pods name, with the time since when they are missing
	missing map[string]time.Time
	now     func() time.Time
}

func runPodGC(ctx context.Context, env controller.Env) error {
	pods, err := client.Open[*corev1.Pod](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open pods: %w", err)
	}
	nodes, err := client.Open[*corev1.Node](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open nodes: %w", err)
	}
	controller.IndexPodsByNode(pods)
	pods.AddIndex(keyEnded, func(p *corev1.Pod) []string {
		if controller.PodEnded(p) {
			return []string{keyEnded}
		}
		return nil
	})
	gc := &podGC{env: env, pods: pods, nodes: nodes, missing: map[string]time.Time{}, now: time.Now}
	loop := controller.Loop{
		Log:    env.Log,
		Queues: env.Queues,
		Name:   "pod-garbage-collector-controller",
		Inputs: []controller.Input{
			controller.On(pods, gc.podKeys),
			controller.On(nodes, func(e client.TypedEvent[*corev1.Node]) []controller.Key {
				if e.Type == client.Deleted || outOfService(e.Object) {
					return []controller.Key{{Namespace: keyNode, Name: e.Object.Name}}
				}
				return nil
			}),
		},
		Reconcile: gc.reconcile, // one worker, which owns missing
	}
	return loop.Run(ctx)
}

func (gc *podGC) podKeys(e client.TypedEvent[*corev1.Pod]) []controller.Key {
	p := e.Object
	if e.Type == client.Deleted {
		return nil
	}
	var keys []controller.Key
	if controller.PodEnded(p) && (e.Type == client.Added || !controller.PodEnded(e.Old)) {
		keys = append(keys, controller.Key{Name: keyEnded})
	}
	if p.Spec.NodeName == "" {
		if p.DeletionTimestamp != nil {
			keys = append(keys, controller.Key{Namespace: keyPod, Name: p.Namespace + "/" + p.Name})
		}
		return keys
	}
	node, ok := gc.nodes.Get("", p.Spec.NodeName)
	if !ok || (p.DeletionTimestamp != nil && outOfService(node)) {
		keys = append(keys, controller.Key{Namespace: keyNode, Name: p.Spec.NodeName})
	}
	return keys
}

func (gc *podGC) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	switch {
	case key.Namespace == keyNode:
		return gc.node(ctx, key.Name)
	case key.Namespace == keyPod:
		namespace, name, _ := strings.Cut(key.Name, "/")
		p, ok := gc.pods.Get(namespace, name)
		if !ok || p.DeletionTimestamp == nil || p.Spec.NodeName != "" {
			return controller.Result{}, nil
		}
		return controller.Result{}, gc.delete(ctx, p, "")
	default:
		return controller.Result{}, gc.ended(ctx)
	}
}

// node handles the pods of one node if it is gone or out of service.
func (gc *podGC) node(ctx context.Context, name string) (controller.Result, error) {
	pods := controller.PodsOnNode(gc.pods, name)
	if node, ok := gc.nodes.Get("", name); ok {
		delete(gc.missing, name)
		if !outOfService(node) || nodeReady(node) {
			return controller.Result{}, nil
		}
		for _, p := range pods {
			if p.DeletionTimestamp == nil {
				continue
			}
			if err := gc.delete(ctx, p, ""); err != nil {
				return controller.Result{}, err
			}
		}
		return controller.Result{}, nil
	}
	if len(pods) == 0 {
		delete(gc.missing, name)
		return controller.Result{}, nil
	}
	since, ok := gc.missing[name]
	if !ok {
		since = gc.now()
		gc.missing[name] = since
	}
	if rest := quarantine - gc.now().Sub(since); rest > 0 {
		return controller.Result{After: rest}, nil
	}
	if _, err := client.Get[*corev1.Node](ctx, gc.env.Client, "", name); !apierrors.IsNotFound(err) {
		return controller.Result{}, err
	}
	for _, p := range pods {
		if err := gc.delete(ctx, p, "PodGC: node no longer exists"); err != nil {
			return controller.Result{}, err
		}
	}
	delete(gc.missing, name)
	return controller.Result{}, nil
}

// ended deletes the oldest ended pods beyond the limit, evicted ones first.
func (gc *podGC) ended(ctx context.Context) error {
	limit := gc.env.Config.TerminatedPodLimit
	if limit <= 0 {
		return nil
	}
	pods := gc.pods.ByIndex(keyEnded, keyEnded)
	if len(pods) <= limit {
		return nil
	}
	slices.SortStableFunc(pods, func(a, b *corev1.Pod) int {
		if ea, eb := evicted(a), evicted(b); ea != eb {
			if ea {
				return -1
			}
			return 1
		}
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	for _, p := range pods[:len(pods)-limit] {
		if err := gc.delete(ctx, p, ""); err != nil {
			return err
		}
	}
	return nil
}

// delete deletes a pod at once. A pod that still counts as running is marked as failed first, so
// that its watchers (a Job) see how it ended. The message disruption becomes its condition
// DisruptionTarget.
func (gc *podGC) delete(ctx context.Context, p *corev1.Pod, disruption string) error {
	if !controller.PodEnded(p) {
		status := map[string]any{"phase": corev1.PodFailed}
		if disruption != "" {
			status["conditions"] = []corev1.PodCondition{{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByPodGC", Message: disruption,
				LastTransitionTime: metav1.NewTime(gc.now()), ObservedGeneration: p.Generation,
			}}
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": p.UID}, "status": status})
		if err != nil {
			return err
		}
		if _, err := client.Patch[*corev1.Pod](ctx, gc.env.Client, p.Namespace, p.Name, types.StrategicMergePatchType, patch, "status"); err != nil {
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("mark pod %s/%s failed: %w", p.Namespace, p.Name, err)
		}
	}
	now := int64(0)
	err := client.Delete[*corev1.Pod](ctx, gc.env.Client, p.Namespace, p.Name,
		metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &p.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}

func evicted(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed && p.Status.Reason == "Evicted"
}

func outOfService(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}

func nodeReady(n *corev1.Node) bool {
	c := condition(n, corev1.NodeReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// condition returns a node's condition, or nil.
func condition(n *corev1.Node, t corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range n.Status.Conditions {
		if n.Status.Conditions[i].Type == t {
			return &n.Status.Conditions[i]
		}
	}
	return nil
}
