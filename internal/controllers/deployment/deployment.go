// Package deployment replaces the pods of a Deployment when its template changes. Each template has
// a ReplicaSet, and the sets are scaled within maxSurge and maxUnavailable.
//
// Words. The new set is the ReplicaSet of the Deployment's template; all others are old. A set is
// active if it asks for replicas. One call of reconcile takes one step (scales sets once); the
// changed status of the sets causes the next call.
//
// In: Deployments, ReplicaSets, Pods. Out: ReplicaSets, the Deployment's status and revision.
package deployment

import (
	"context"
	"fmt"
	"math"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// Deployment is the controller.
var Deployment = controller.Starter{Name: "deployment-controller", Run: run}

var (
	deploymentKind = appsv1.SchemeGroupVersion.WithKind("Deployment")
	setKind        = appsv1.SchemeGroupVersion.WithKind("ReplicaSet")
)

type deployments struct {
	env         controller.Env
	deployments client.ViewOf[*appsv1.Deployment]
	sets        client.ViewOf[*appsv1.ReplicaSet]
	pods        client.ViewOf[*corev1.Pod]
	now         func() time.Time
}

func run(ctx context.Context, env controller.Env) error {
	view, err := client.Open[*appsv1.Deployment](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open deployments: %w", err)
	}
	sets, err := client.Open[*appsv1.ReplicaSet](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open replica sets: %w", err)
	}
	pods, err := client.Open[*corev1.Pod](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open pods: %w", err)
	}
	controller.IndexOwners(sets)
	controller.IndexOwners(pods)
	c := &deployments{env: env, deployments: view, sets: sets, pods: pods, now: env.Now}
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name:      "deployment-controller",
		Inputs:    []controller.Input{controller.Self(view), controller.On(sets, c.setKeys), controller.On(pods, c.podKeys)},
		Workers:   5,
		Reconcile: c.reconcile,
	}
	return loop.Run(ctx)
}

// setKeys returns the controller of a set, or the deployments whose selector matches a set without
// controller.
func (c *deployments) setKeys(e client.TypedEvent[*appsv1.ReplicaSet]) []controller.Key {
	keys := controller.States(func(rs *appsv1.ReplicaSet) []controller.Key { return controller.OwnerKeys(rs, deploymentKind) })(e)
	if e.Type == client.Deleted || e.Object.DeletionTimestamp != nil || metav1.GetControllerOfNoCopy(e.Object) != nil {
		return keys
	}
	for _, d := range c.deployments.List(e.Object.Namespace, nil) {
		if s, err := metav1.LabelSelectorAsSelector(d.Spec.Selector); err == nil && !s.Empty() && s.Matches(labels.Set(e.Object.Labels)) {
			keys = append(keys, controller.KeyOf(d))
		}
	}
	return keys
}

// podKeys returns the deployments of type Recreate that may wait for this pod's end. Other
// deployments do not look at pods.
func (c *deployments) podKeys(e client.TypedEvent[*corev1.Pod]) []controller.Key {
	if e.Type == client.Added || (e.Type == client.Modified && !(controller.PodEnded(e.Object) && !controller.PodEnded(e.Old))) {
		return nil
	}
	for _, key := range controller.OwnerKeys(e.Object, setKind) {
		rs, ok := c.sets.Get(key.Namespace, key.Name)
		if !ok {
			continue
		}
		for _, key := range controller.OwnerKeys(rs, deploymentKind) {
			if d, ok := c.deployments.Get(key.Namespace, key.Name); ok && d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
				return []controller.Key{key}
			}
		}
	}
	return nil
}

func (c *deployments) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	shared, ok := c.deployments.Get(key.Namespace, key.Name)
	if !ok {
		return controller.Result{}, nil
	}
	d := shared.DeepCopy()
	if equality.Semantic.DeepEqual(d.Spec.Selector, &metav1.LabelSelector{}) {
		c.env.Events.Eventf(shared, nil, corev1.EventTypeWarning, "SelectingAll", "Select", "This deployment is selecting all pods. A non-empty selector is required.")
		if d.Status.ObservedGeneration < d.Generation {
			d.Status.ObservedGeneration = d.Generation
			_, err := client.UpdateStatus(ctx, c.env.Client, d)
			return controller.Result{}, err
		}
		return controller.Result{}, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil {
		return controller.Result{}, controller.Terminal(fmt.Errorf("selector of deployment %s: %w", key, err))
	}
	owned, err := controller.Claimer[*appsv1.ReplicaSet]{Client: c.env.Client, View: c.sets, Owner: shared, Kind: deploymentKind, Selector: selector}.Claim(ctx)
	if err != nil {
		return controller.Result{}, err
	}
	result, err := c.step(ctx, d, owned)
	if apierrors.IsNotFound(err) {
		err = nil // deleted meanwhile; its event follows
	}
	return result, err
}

// step takes the one step that is due: it records a pause, scales, or continues the rollout.
func (c *deployments) step(ctx context.Context, d *appsv1.Deployment, owned []*appsv1.ReplicaSet) (controller.Result, error) {
	r := &rollout{deployments: c, d: d, all: owned}
	if d.DeletionTimestamp != nil {
		if err := r.classify(ctx, false); err != nil {
			return controller.Result{}, err
		}
		return controller.Result{}, r.syncStatus(ctx)
	}
	if err := r.recordPaused(ctx); err != nil {
		return controller.Result{}, err
	}
	if d.Spec.Paused || r.beingScaled() {
		return controller.Result{}, r.scaleOnly(ctx)
	}
	if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return r.recreate(ctx)
	}
	return r.rolling(ctx)
}

// rollout is the work of one call on one deployment; d is a private copy.
type rollout struct {
	*deployments
	d      *appsv1.Deployment
	all    []*appsv1.ReplicaSet
	newSet *appsv1.ReplicaSet // nil while it does not exist
	old    []*appsv1.ReplicaSet
}

func (r *rollout) replicas() int32 { return replicasOf(r.d.Spec.Replicas) }

func replicasOf(p *int32) int32 {
	if p == nil {
		return 1
	}
	return *p
}

// limits returns maxSurge (rounded up) and maxUnavailable (rounded down) as numbers of pods. They
// are never both zero, which would block every rollout.
func (r *rollout) limits() (surge, unavailable int32) {
	if r.d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || r.d.Spec.Strategy.RollingUpdate == nil {
		return 0, 0
	}
	total := int(r.replicas())
	scaled := func(v *intstr.IntOrString, up bool) int32 {
		if v == nil {
			return 0
		}
		n, err := intstr.GetScaledValueFromIntOrPercent(v, total, up)
		if err != nil {
			return 0
		}
		return int32(n)
	}
	surge = scaled(r.d.Spec.Strategy.RollingUpdate.MaxSurge, true)
	unavailable = scaled(r.d.Spec.Strategy.RollingUpdate.MaxUnavailable, false)
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, min(unavailable, r.replicas())
}

func (r *rollout) hasDeadline() bool {
	return r.d.Spec.ProgressDeadlineSeconds != nil && *r.d.Spec.ProgressDeadlineSeconds != math.MaxInt32
}

// active returns the sets that ask for replicas.
func active(sets []*appsv1.ReplicaSet) []*appsv1.ReplicaSet {
	var out []*appsv1.ReplicaSet
	for _, rs := range sets {
		if replicasOf(rs.Spec.Replicas) > 0 {
			out = append(out, rs)
		}
	}
	return out
}

// wanted returns the sum of the replicas that the sets ask for.
func wanted(sets []*appsv1.ReplicaSet) int32 {
	n := int32(0)
	for _, rs := range sets {
		n += replicasOf(rs.Spec.Replicas)
	}
	return n
}

// available returns the sum of the sets' available replicas.
func available(sets []*appsv1.ReplicaSet) int32 {
	n := int32(0)
	for _, rs := range sets {
		n += rs.Status.AvailableReplicas
	}
	return n
}
