// Package replicaset keeps as many pods as a ReplicaSet or a ReplicationController asks for. Both
// kinds share the code: a ReplicationController is handled as a ReplicaSet with an older selector.
//
// In: ReplicaSets, ReplicationControllers, Pods. Out: Pods, and the status of both kinds.
package replicaset

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

// ReplicaSet is the controller of ReplicaSets.
var ReplicaSet = controller.Starter{Name: "replicaset-controller", Run: func(ctx context.Context, env controller.Env) error {
	return run(ctx, env, kind[*appsv1.ReplicaSet]{
		gvk:  appsv1.SchemeGroupVersion.WithKind("ReplicaSet"),
		asRS: func(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet { return rs },
		withStatus: func(rs *appsv1.ReplicaSet, status appsv1.ReplicaSetStatus) *appsv1.ReplicaSet {
			rs = rs.DeepCopy()
			rs.Status = status
			return rs
		},
	})
}}

// burst is the most pods created or deleted in one call.
const burst = 500

// kind describes the differences between the two kinds.
type kind[T client.Object] struct {
	gvk schema.GroupVersionKind
	// asRS converts the object to a ReplicaSet that shares its parts.
	asRS       func(T) *appsv1.ReplicaSet
	withStatus func(T, appsv1.ReplicaSetStatus) T
}

type sets[T client.Object] struct {
	kind[T]
	env     controller.Env
	control controller.PodControl
	sets    client.ViewOf[T]
	pods    client.ViewOf[*corev1.Pod]
	now     func() time.Time
}

func run[T client.Object](ctx context.Context, env controller.Env, k kind[T]) error {
	view, err := client.Open[T](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open %s: %w", k.gvk.Kind, err)
	}
	pods, err := client.Open[*corev1.Pod](ctx, env.Client, client.Scope{})
	if err != nil {
		return fmt.Errorf("open pods: %w", err)
	}
	controller.IndexOwners(pods)
	controller.IndexOwners(view)
	s := &sets[T]{kind: k, env: env, control: controller.PodControl{Client: env.Client, Events: env.Events}, sets: view, pods: pods, now: env.Now}
	loop := controller.Loop{
		Clock: env.Clock, Log: env.Log, Queues: env.Queues,
		Name:      k.gvk.Kind,
		Inputs:    []controller.Input{controller.Self(view), controller.On(pods, s.podKeys)},
		Workers:   5,
		Reconcile: s.reconcile,
	}
	return loop.Run(ctx)
}

// podKeys returns the pod's controllers before and after the event. For a pod without controller it
// returns all sets whose selector matches.
func (s *sets[T]) podKeys(e client.TypedEvent[*corev1.Pod]) []controller.Key {
	keys := controller.States(func(p *corev1.Pod) []controller.Key { return controller.OwnerKeys(p, s.gvk) })(e)
	if e.Type == client.Deleted || e.Object.DeletionTimestamp != nil || metav1.GetControllerOfNoCopy(e.Object) != nil {
		return keys
	}
	for _, set := range s.sets.List(e.Object.Namespace, nil) {
		if selector, err := selectorOf(s.asRS(set)); err == nil && selector.Matches(labels.Set(e.Object.Labels)) {
			keys = append(keys, controller.KeyOf(set))
		}
	}
	return keys
}

// selectorOf returns a set's selector; an empty one matches nothing.
func selectorOf(rs *appsv1.ReplicaSet) (labels.Selector, error) {
	if rs.Spec.Selector == nil || len(rs.Spec.Selector.MatchLabels)+len(rs.Spec.Selector.MatchExpressions) == 0 {
		return labels.Nothing(), nil
	}
	return metav1.LabelSelectorAsSelector(rs.Spec.Selector)
}

func (s *sets[T]) reconcile(ctx context.Context, key controller.Key) (controller.Result, error) {
	var result controller.Result
	obj, ok := s.sets.Get(key.Namespace, key.Name)
	if !ok {
		return result, nil
	}
	rs := s.asRS(obj)
	selector, err := selectorOf(rs)
	if err != nil {
		return result, controller.Terminal(fmt.Errorf("selector of %s %s: %w", s.gvk.Kind, key, err))
	}
	pods, err := controller.Claimer[*corev1.Pod]{
		Client: s.env.Client, View: s.pods, Owner: obj, Kind: s.gvk, Selector: selector,
		Adoptable: controller.PodActive,
	}.Claim(ctx)
	if err != nil {
		return result, err
	}
	var active []*corev1.Pod
	terminating := int32(0)
	for _, p := range pods {
		if controller.PodActive(p) {
			active = append(active, p)
		} else if p.DeletionTimestamp != nil && !controller.PodEnded(p) {
			terminating++
		}
	}
	change := change{}
	if rs.DeletionTimestamp == nil {
		change = s.manage(ctx, obj, rs, active)
	}
	status, wait := s.status(rs, change, terminating)
	if !sameStatus(rs, status) {
		if _, err := client.UpdateStatus(ctx, s.env.Client, s.withStatus(obj, status)); err != nil {
			if apierrors.IsNotFound(err) {
				err = nil
			}
			return result, errors.Join(err, change.err)
		}
	}
	result.After = wait
	if controller.NamespaceTerminating(change.err) {
		return result, nil
	}
	return result, change.err
}

// change is the result of manage: the remaining active pods, and the error.
type change struct {
	pods []*corev1.Pod
	verb string // reason of the condition ReplicaFailure
	err  error
}

// manage creates or deletes pods until the number of active ones is the wanted one.
func (s *sets[T]) manage(ctx context.Context, obj T, rs *appsv1.ReplicaSet, active []*corev1.Pod) change {
	want := 1
	if rs.Spec.Replicas != nil {
		want = int(*rs.Spec.Replicas)
	}
	switch diff := len(active) - want; {
	case diff < 0:
		missing := min(-diff, burst)
		ref := metav1.NewControllerRef(obj, s.gvk)
		created := make([]*corev1.Pod, missing)
		_, err := controller.SlowStart(missing, 1, func(i int) error {
			p, err := s.control.Create(ctx, obj, controller.PodFromTemplate(&rs.Spec.Template, obj, ref))
			created[i] = p
			return err
		})
		for _, p := range created {
			if p != nil {
				active = append(active, p)
			}
		}
		return change{pods: active, verb: "FailedCreate", err: err}
	case diff > 0:
		victims := s.victims(rs, active, min(diff, burst))
		err := controller.All(len(victims), func(i int) error { return s.control.Delete(ctx, obj, victims[i]) })
		gone := map[*corev1.Pod]bool{}
		for _, p := range victims {
			gone[p] = true
		}
		var left []*corev1.Pod
		for _, p := range active {
			if !gone[p] {
				left = append(left, p)
			}
		}
		if err != nil {
			left = active // some deletions may have failed; the pods' events queue the set again
		}
		return change{pods: left, verb: "FailedDelete", err: err}
	}
	return change{pods: active}
}

// status computes the new status. wait is the time until the next pod has been ready for
// minReadySeconds.
func (s *sets[T]) status(rs *appsv1.ReplicaSet, c change, terminating int32) (status appsv1.ReplicaSetStatus, wait time.Duration) {
	status = *rs.Status.DeepCopy()
	pods := c.pods
	if rs.DeletionTimestamp != nil {
		pods = nil
		for _, p := range controller.Controlled(s.pods, rs.UID) {
			if controller.PodActive(p) {
				pods = append(pods, p)
			}
		}
	}
	status.Replicas, status.FullyLabeledReplicas, status.ReadyReplicas, status.AvailableReplicas = int32(len(pods)), 0, 0, 0
	if s.gvk.Kind == "ReplicaSet" { // ReplicationControllers lack the field
		status.TerminatingReplicas = &terminating
	}
	status.ObservedGeneration = rs.Generation
	full := labels.Set(rs.Spec.Template.Labels).AsSelectorPreValidated()
	now := s.now()
	for _, p := range pods {
		if full.Matches(labels.Set(p.Labels)) {
			status.FullyLabeledReplicas++
		}
		if controller.PodReady(p) {
			status.ReadyReplicas++
		}
		available, rest := controller.PodAvailable(p, rs.Spec.MinReadySeconds, now)
		if available {
			status.AvailableReplicas++
		} else if rest > 0 && (wait == 0 || rest < wait) {
			wait = rest
		}
	}
	setFailure(&status, c, now)
	return status, wait
}

// setFailure sets or removes the condition ReplicaFailure.
func setFailure(status *appsv1.ReplicaSetStatus, c change, now time.Time) {
	var kept []appsv1.ReplicaSetCondition
	var have *appsv1.ReplicaSetCondition
	for i, condition := range status.Conditions {
		if condition.Type == appsv1.ReplicaSetReplicaFailure {
			have = &status.Conditions[i]
			continue
		}
		kept = append(kept, condition)
	}
	if c.err != nil {
		if have == nil {
			have = &appsv1.ReplicaSetCondition{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue,
				LastTransitionTime: metav1.NewTime(now), Reason: c.verb, Message: c.err.Error()}
		}
		kept = append(kept, *have)
	}
	status.Conditions = kept
}
