package main

import (
	"context"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	finalizer = "harbour.example.com/farewell"
	berthed   = corev1.PodConditionType("harbour.example.com/berthed") // the readiness gate
	// Label of pods with the name of their ConfigMap.
	fleetKey  = "harbour.example.com/fleet"
	gateIndex = "gate"
)

var fleets = metav1.LabelSelector{MatchLabels: map[string]string{"kind": "fleet"}}

// gatesOf indexes pods with a closed gate by fleet.
func gatesOf(o client.Object) []string {
	pod := o.(*corev1.Pod)
	if len(pod.Spec.ReadinessGates) == 0 || isBerthed(pod) {
		return nil
	}
	return []string{pod.Labels[fleetKey]}
}

func isBerthed(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == berthed {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func fleetOf(_ context.Context, o client.Object) []reconcile.Request {
	if name := o.GetLabels()[fleetKey]; name != "" {
		return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
	}
	return nil
}

type reconciler struct {
	client.Client
	events events.EventRecorder
}

// Reconcile brings one fleet to the state that its ConfigMap requests.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	fleet := &corev1.ConfigMap{}
	if err := r.Get(ctx, req.NamespacedName, fleet); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !fleet.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.handleDeletion(ctx, fleet)
	}
	if controllerutil.AddFinalizer(fleet, finalizer) {
		return ctrl.Result{}, r.Update(ctx, fleet)
	}
	ships, err := strconv.Atoi(fleet.Data["ships"])
	if err != nil {
		r.events.Eventf(fleet, nil, corev1.EventTypeWarning, "Refused", "Read", "ships: %q is not a number", fleet.Data["ships"])
		return ctrl.Result{}, reconcile.TerminalError(err)
	}
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: fleet.Name}}
	done, err := controllerutil.CreateOrUpdate(ctx, r.Client, deployment, func() error { return r.shape(fleet, deployment, int32(ships)) })
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("deployment: %w", err)
	}
	if done != controllerutil.OperationResultNone {
		r.events.Eventf(fleet, deployment, corev1.EventTypeNormal, "Sailing", "Deploy", "%s: %d ships", done, ships)
	}
	if err := r.openGates(ctx, fleet); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.recordReady(ctx, fleet, deployment)
}

func (r *reconciler) shape(fleet *corev1.ConfigMap, d *appsv1.Deployment, ships int32) error {
	labels := map[string]string{fleetKey: fleet.Name}
	d.Spec.Replicas, d.Spec.Selector = &ships, &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels = labels
	d.Spec.Template.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: berthed}}
	grace := int64(1)
	d.Spec.Template.Spec.TerminationGracePeriodSeconds = &grace
	if len(d.Spec.Template.Spec.Containers) == 0 {
		d.Spec.Template.Spec.Containers = make([]corev1.Container, 1)
	}
	c := &d.Spec.Template.Spec.Containers[0]
	c.Name, c.Image = "ship", fleet.Data["image"]
	return controllerutil.SetControllerReference(fleet, d, r.Scheme())
}

// openGates sets the condition that the fleet's pods wait for.
func (r *reconciler) openGates(ctx context.Context, fleet *corev1.ConfigMap) error {
	pods := &corev1.PodList{}
	if err := r.List(ctx, pods, client.InNamespace(fleet.Namespace), client.MatchingFields{gateIndex: fleet.Name}); err != nil {
		return err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		before := pod.DeepCopy()
		pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
			Type: berthed, Status: corev1.ConditionTrue, Reason: "Moored", LastTransitionTime: metav1.Now(),
		})
		if err := r.Status().Patch(ctx, pod, client.StrategicMergeFrom(before)); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("gate of pod %s: %w", pod.Name, err)
		}
	}
	return nil
}

// recordReady records the number of ready ships.
func (r *reconciler) recordReady(ctx context.Context, fleet *corev1.ConfigMap, d *appsv1.Deployment) error {
	ready := fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, *d.Spec.Replicas)
	if fleet.Annotations["ready"] == ready {
		return nil
	}
	before := fleet.DeepCopy()
	if fleet.Annotations == nil {
		fleet.Annotations = map[string]string{}
	}
	fleet.Annotations["ready"] = ready
	return r.Patch(ctx, fleet, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

func (r *reconciler) handleDeletion(ctx context.Context, fleet *corev1.ConfigMap) error {
	if !controllerutil.RemoveFinalizer(fleet, finalizer) {
		return nil
	}
	r.events.Eventf(fleet, nil, corev1.EventTypeNormal, "Farewell", "Delete", "the fleet %s is dismissed", fleet.Name)
	return r.Update(ctx, fleet)
}
