// Package statefulset maintains the pods of StatefulSets. Each pod has its own name, ordinal and
// volumes. Pods start, stop and update one after the other unless podManagementPolicy is Parallel.
//
// Words. A replica is the pod of an ordinal in [start, start+replicas); any other pod of the set is
// condemned. The current revision is the result of the last completed rollout. The update revision
// is that of the set's template.
//
// In: StatefulSets, Pods, PersistentVolumeClaims, ControllerRevisions. Out: Pods, claims,
// revisions, the set's status.
package statefulset

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// StatefulSet is the controller.
var StatefulSet = controller.Starter{Name: "statefulset-controller", Run: run}

// historyLabel marks a revision with the hash of its template. Pods carry the revision's name
// instead.
const historyLabel = "controller.kubernetes.io/hash"

var kind = appsv1.SchemeGroupVersion.WithKind("StatefulSet")

type statefulSets struct {
	env     controller.Env
	history controller.History
	sets    client.ViewOf[*appsv1.StatefulSet]
	pods    client.ViewOf[*corev1.Pod]
	claims  client.ViewOf[*corev1.PersistentVolumeClaim]
	now     func() time.Time
}

func run(ctx context.Context, env controller.Env) error {
	sets, err := client.Open[*appsv1.StatefulSet](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open stateful sets: %w", err)
	}
	pods, err := client.Open[*corev1.Pod](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open pods: %w", err)
	}
	claims, err := client.Open[*corev1.PersistentVolumeClaim](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open persistent volume claims: %w", err)
	}
	revisions, err := client.Open[*appsv1.ControllerRevision](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open controller revisions: %w", err)
	}
	controller.IndexOwners(pods)
	controller.IndexOwners(revisions)
	c := &statefulSets{env: env, sets: sets, pods: pods, claims: claims, now: env.Now,
		history: controller.History{Client: env.Client, Revisions: revisions, Kind: kind, HashLabel: historyLabel}}
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name:      "statefulset-controller",
		Inputs:    []controller.Input{controller.Self(sets), controller.On(pods, c.podKeys)},
		Workers:   5,
		Reconcile: c.reconcile,
	}
	return loop.Run(ctx)
}

func (c *statefulSets) podKeys(e client.TypedEvent[*corev1.Pod]) []controller.Key {
	keys := controller.States(func(p *corev1.Pod) []controller.Key { return controller.OwnerKeys(p, kind) })(e)
	if e.Type == client.Deleted || e.Object.DeletionTimestamp != nil || metav1.GetControllerOfNoCopy(e.Object) != nil {
		return keys
	}
	if parent, _ := splitName(e.Object.Name); parent != "" {
		if _, ok := c.sets.Get(e.Object.Namespace, parent); ok {
			keys = append(keys, controller.Key{Namespace: e.Object.Namespace, Name: parent})
		}
	}
	return keys
}

// splitName splits a pod's name; ordinal is -1 if it is not the name of a replica.
func splitName(name string) (parent string, ordinal int) {
	i := strings.LastIndexByte(name, '-')
	if i <= 0 {
		return "", -1
	}
	n, err := strconv.ParseInt(name[i+1:], 10, 32)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != name[i+1:] {
		return "", -1
	}
	return name[:i], int(n)
}

func (c *statefulSets) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	set, ok := c.sets.Get(key.Namespace, key.Name)
	if !ok {
		return controller.Result{}, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return controller.Result{}, controller.Terminal(fmt.Errorf("selector of stateful set %s: %w", key, err))
	}
	result, err := c.step(ctx, set.DeepCopy(), selector)
	if apierrors.IsNotFound(err) || controller.NamespaceTerminating(err) {
		err = nil
	}
	return result, err
}

func (c *statefulSets) step(ctx context.Context, set *appsv1.StatefulSet, selector labels.Selector) (controller.Result, error) {
	owned, err := controller.Claimer[*appsv1.ControllerRevision]{Client: c.env.Client, View: c.history.Revisions, Owner: set, Kind: kind, Selector: selector}.Claim(ctx)
	if err != nil {
		return controller.Result{}, err
	}
	pods, err := controller.Claimer[*corev1.Pod]{
		Client: c.env.Client, View: c.pods, Owner: set, Kind: kind, Selector: selector,
		Matches: func(p *corev1.Pod) bool { parent, _ := splitName(p.Name); return parent == set.Name },
	}.Claim(ctx)
	if err != nil {
		return controller.Result{}, err
	}
	r := &round{statefulSets: c, set: set, pods: pods}
	if err := r.revisions(ctx, owned); err != nil {
		return controller.Result{}, err
	}
	r.sort()
	actErr := r.act(ctx)
	if err := r.writeStatus(ctx); err != nil {
		return controller.Result{}, err
	}
	if actErr != nil {
		return controller.Result{}, actErr
	}
	used := map[string]bool{r.current.Name: true, r.update.Name: true}
	for _, p := range pods {
		used[p.Labels[appsv1.StatefulSetRevisionLabel]] = true
	}
	err = c.history.Trim(ctx, r.all, set.Spec.RevisionHistoryLimit, func(r *appsv1.ControllerRevision) bool { return used[r.Name] })
	return controller.Result{After: r.wait}, err
}

// revisions finds the update revision and the current one.
func (r *round) revisions(ctx context.Context, owned []*appsv1.ControllerRevision) error {
	all, update, err := r.history.Ensure(ctx, r.set, owned, &r.set.Spec.Template, r.set.Status.CollisionCount, func() (*int32, error) {
		count := int32(1)
		if r.set.Status.CollisionCount != nil {
			count += *r.set.Status.CollisionCount
		}
		r.set.Status.CollisionCount = &count
		updated, err := client.UpdateStatus(ctx, r.env.Client, r.set)
		if err == nil {
			r.set = updated.DeepCopy()
		}
		return &count, err
	})
	if err != nil {
		return err
	}
	r.all, r.update, r.current = all, update, update
	for _, revision := range all {
		if revision.Name == r.set.Status.CurrentRevision {
			r.current = revision
		}
	}
	return nil
}
