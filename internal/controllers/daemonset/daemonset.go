// Package daemonset keeps one pod of a DaemonSet on every node that it fits, and replaces the pods
// when the template changes.
//
// Words. A pod is on the node it is bound to or, before that, on the node its affinity names: the
// scheduler binds daemon pods too. A pod is new if its controller-revision-hash is that of the
// current template, else old.
//
// In: DaemonSets, Pods, Nodes, ControllerRevisions. Out: Pods, ControllerRevisions, the DaemonSet's
// status.
package daemonset

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// DaemonSet is the controller.
var DaemonSet = controller.Starter{Name: "daemonset-controller", Account: "daemon-set-controller", Run: run}

const (
	burst              = 250 // most creations and deletions in one call
	hashLabel          = appsv1.DefaultDaemonSetUniqueLabelKey
	minFailedPodsPause = time.Second
	maxFailedPodsPause = 15 * time.Minute
)

var kind = appsv1.SchemeGroupVersion.WithKind("DaemonSet")

type daemonSets struct {
	env     controller.Env
	control controller.PodControl
	history controller.History
	sets    client.ViewOf[*appsv1.DaemonSet]
	pods    client.ViewOf[*corev1.Pod]
	nodes   client.ViewOf[*corev1.Node]
	// By set, revision and node: the delay before a failed pod is replaced; safe for concurrent
	// use.
	failed *flowcontrol.Backoff
	now    func() time.Time
}

func run(ctx context.Context, env controller.Env) error {
	sets, err := client.Open[*appsv1.DaemonSet](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open daemon sets: %w", err)
	}
	pods, err := client.Open[*corev1.Pod](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open pods: %w", err)
	}
	nodes, err := client.Open[*corev1.Node](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open nodes: %w", err)
	}
	revisions, err := client.Open[*appsv1.ControllerRevision](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open controller revisions: %w", err)
	}
	controller.IndexOwners(pods)
	controller.IndexOwners(revisions)
	c := &daemonSets{
		env: env, control: controller.PodControl{Client: env.Client, Events: env.Events}, sets: sets, pods: pods, nodes: nodes, now: env.Now,
		history: controller.History{Client: env.Client, Revisions: revisions, Kind: kind, HashLabel: hashLabel},
		failed:  flowcontrol.NewBackOff(minFailedPodsPause, maxFailedPodsPause),
	}
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name: "daemonset-controller",
		Inputs: []controller.Input{
			controller.Self(sets),
			controller.On(pods, c.podKeys),
			controller.On(nodes, c.nodeKeys),
			controller.On(revisions, c.revisionKeys),
		},
		Workers:   2,
		Reconcile: c.reconcile,
	}
	return loop.Run(ctx)
}

func (c *daemonSets) podKeys(e client.TypedEvent[*corev1.Pod]) []controller.Key {
	keys := controller.States(func(p *corev1.Pod) []controller.Key { return controller.OwnerKeys(p, kind) })(e)
	if e.Type == client.Deleted || e.Object.DeletionTimestamp != nil || metav1.GetControllerOfNoCopy(e.Object) != nil {
		return keys
	}
	return append(keys, c.selecting(e.Object)...)
}

// selecting returns the sets that would adopt an object without a controller.
func (c *daemonSets) selecting(obj metav1.Object) []controller.Key {
	var keys []controller.Key
	for _, ds := range c.sets.List(obj.GetNamespace(), nil) {
		if s, err := metav1.LabelSelectorAsSelector(ds.Spec.Selector); err == nil && !s.Empty() && s.Matches(labels.Set(obj.GetLabels())) {
			keys = append(keys, controller.KeyOf(ds))
		}
	}
	return keys
}

// revisionKeys returns the sets that a revision concerns. A revision added by a user concerns none;
// a deleted one may have to be created again.
func (c *daemonSets) revisionKeys(e client.TypedEvent[*appsv1.ControllerRevision]) []controller.Key {
	switch {
	case e.Type == client.Deleted:
		return controller.OwnerKeys(e.Object, kind)
	case metav1.GetControllerOfNoCopy(e.Object) == nil && e.Object.DeletionTimestamp == nil:
		return c.selecting(e.Object)
	}
	return nil
}

// nodeKeys returns all sets if a node is added, is deleted, or changes in a field that decides
// about fitting.
func (c *daemonSets) nodeKeys(e client.TypedEvent[*corev1.Node]) []controller.Key {
	if e.Type == client.Modified && equality.Semantic.DeepEqual(e.Old.Labels, e.Object.Labels) &&
		equality.Semantic.DeepEqual(e.Old.Spec.Taints, e.Object.Spec.Taints) && e.Old.Spec.Unschedulable == e.Object.Spec.Unschedulable {
		return nil
	}
	var keys []controller.Key
	for _, ds := range c.sets.List("", nil) {
		keys = append(keys, controller.KeyOf(ds))
	}
	return keys
}

func (c *daemonSets) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	ds, ok := c.sets.Get(key.Namespace, key.Name)
	if !ok || ds.DeletionTimestamp != nil {
		return controller.Result{}, nil
	}
	if equality.Semantic.DeepEqual(ds.Spec.Selector, &metav1.LabelSelector{}) {
		c.env.Events.Eventf(ds, nil, corev1.EventTypeWarning, "SelectingAll", "Select", "This daemon set is selecting all pods. A non-empty selector is required.")
		return controller.Result{}, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(ds.Spec.Selector)
	if err != nil {
		return controller.Result{}, controller.Terminal(fmt.Errorf("selector of daemon set %s: %w", key, err))
	}
	result, err := c.step(ctx, ds, selector)
	if apierrors.IsNotFound(err) || controller.NamespaceTerminating(err) {
		err = nil
	}
	return result, err
}

func (c *daemonSets) step(ctx context.Context, ds *appsv1.DaemonSet, selector labels.Selector) (controller.Result, error) {
	owned, err := controller.Claimer[*appsv1.ControllerRevision]{Client: c.env.Client, View: c.history.Revisions, Owner: ds, Kind: kind, Selector: selector}.Claim(ctx)
	if err != nil {
		return controller.Result{}, err
	}
	revisions, current, err := c.history.Ensure(ctx, ds, owned, &ds.Spec.Template, ds.Status.CollisionCount, func() (*int32, error) { return c.countCollision(ctx, ds) })
	if err != nil {
		return controller.Result{}, err
	}
	claimer := controller.Claimer[*corev1.Pod]{Client: c.env.Client, View: c.pods, Owner: ds, Kind: kind, Selector: selector}
	pods, err := claimer.Claim(ctx)
	if err != nil {
		return controller.Result{}, err
	}
	r := &round{daemonSets: c, ds: ds, hash: current.Labels[hashLabel]}
	r.sort(pods)
	manageErr := r.manage(ctx)
	if manageErr == nil && ds.Spec.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		// The View contains the changes of manage already.
		r.sort(controller.Controlled(c.pods, ds.UID))
		manageErr = r.rollingUpdate(ctx)
	}
	r.sort(controller.Controlled(c.pods, ds.UID))
	if err := r.writeStatus(ctx); err != nil {
		return controller.Result{}, err
	}
	if manageErr != nil {
		return controller.Result{}, manageErr
	}
	used := map[string]bool{current.Labels[hashLabel]: true}
	for _, p := range controller.Controlled(c.pods, ds.UID) {
		used[p.Labels[hashLabel]] = true
	}
	err = c.history.Trim(ctx, revisions, ds.Spec.RevisionHistoryLimit, func(r *appsv1.ControllerRevision) bool { return used[r.Labels[hashLabel]] })
	return controller.Result{After: r.wait}, err
}

func (c *daemonSets) countCollision(ctx context.Context, ds *appsv1.DaemonSet) (*int32, error) {
	fresh, err := client.Get[*appsv1.DaemonSet](ctx, c.env.Client, ds.Namespace, ds.Name)
	if err != nil {
		return nil, err
	}
	fresh = fresh.DeepCopy()
	count := int32(1)
	if fresh.Status.CollisionCount != nil {
		count += *fresh.Status.CollisionCount
	}
	fresh.Status.CollisionCount = &count
	_, err = client.UpdateStatus(ctx, c.env.Client, fresh)
	return &count, err
}
