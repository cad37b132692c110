package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
)

// PodActive reports whether the pod has not ended and is not being deleted.
func PodActive(p *corev1.Pod) bool {
	return !PodEnded(p) && p.DeletionTimestamp == nil
}

// PodEnded reports whether the pod succeeded or failed.
func PodEnded(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// PodCondition returns the pod's condition of the type, or nil.
func PodCondition(p *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == t {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// PodReady reports whether the condition Ready is True.
func PodReady(p *corev1.Pod) bool {
	c := PodCondition(p, corev1.PodReady)
	return c != nil && c.Status == corev1.ConditionTrue
}

// PodAvailable reports whether the pod has been ready for minReadySeconds. If it is ready but not
// yet for that long, wait is the remaining time.
func PodAvailable(p *corev1.Pod, minReadySeconds int32, now time.Time) (available bool, wait time.Duration) {
	c := PodCondition(p, corev1.PodReady)
	if c == nil || c.Status != corev1.ConditionTrue {
		return false, 0
	}
	if minReadySeconds == 0 {
		return true, 0
	}
	if c.LastTransitionTime.IsZero() {
		return false, 0
	}
	rest := c.LastTransitionTime.Add(time.Duration(minReadySeconds) * time.Second).Sub(now)
	return rest <= 0, max(0, rest)
}

// PodFromTemplate returns the pod of a template for its controller. Its name is generated from the
// owner's.
func PodFromTemplate(t *corev1.PodTemplateSpec, owner metav1.Object, ref *metav1.OwnerReference) *corev1.Pod {
	t = t.DeepCopy()
	prefix := owner.GetName() + "-"
	if len(validation.NameIsDNSSubdomain(prefix, true)) != 0 {
		prefix = owner.GetName()
	}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: prefix,
			Namespace:    owner.GetNamespace(),
			Labels:       t.Labels,
			Annotations:  t.Annotations,
			Finalizers:   t.Finalizers,
		},
		Spec: t.Spec,
	}
	if ref != nil {
		p.OwnerReferences = []metav1.OwnerReference{*ref}
	}
	return p
}

// PodControl creates and deletes pods for their owner and sends Events about it.
type PodControl struct {
	Client client.Interface
	Events client.Recorder
}

// Create creates the pod. A failure is reported as FailedCreate on the owner, unless the namespace
// is being deleted.
func (c PodControl) Create(ctx context.Context, owner client.Object, pod *corev1.Pod) (*corev1.Pod, error) {
	if len(pod.Labels) == 0 {
		return nil, fmt.Errorf("unable to create pods, no labels")
	}
	created, err := client.Create(ctx, c.Client, pod)
	if err != nil {
		if !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			c.Events.Eventf(owner, nil, corev1.EventTypeWarning, "FailedCreate", "Create", "Error creating: %v", err)
		}
		return nil, err
	}
	c.Events.Eventf(owner, created, corev1.EventTypeNormal, "SuccessfulCreate", "Create", "Created pod: %v", created.Name)
	return created, nil
}

// Delete deletes this pod, not another one of the same name. It is no error if the pod is gone.
func (c PodControl) Delete(ctx context.Context, owner client.Object, pod *corev1.Pod) error {
	err := client.Delete[*corev1.Pod](ctx, c.Client, pod.Namespace, pod.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &pod.UID}})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		c.Events.Eventf(owner, nil, corev1.EventTypeWarning, "FailedDelete", "Delete", "Error deleting: %v", err)
		return fmt.Errorf("delete pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	c.Events.Eventf(owner, pod, corev1.EventTypeNormal, "SuccessfulDelete", "Delete", "Deleted pod: %v", pod.Name)
	return nil
}

// NamespaceTerminating reports whether the error is the refusal to create in a namespace that is
// being deleted.
func NamespaceTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// SlowStart calls fn for 0..count-1 in concurrent batches that double in size from initial on, and
// stops after a batch with a failure. A quota or an admission plugin that refuses one pod would
// refuse a thousand others too. It returns the number of successful calls, and the first error.
func SlowStart(count, initial int, fn func(i int) error) (succeeded int, err error) {
	next := 0
	for batch := min(count, max(1, initial)); batch > 0; batch = min(2*batch, count-next) {
		errs := make([]error, batch)
		var group sync.WaitGroup
		for i := range batch {
			group.Go(func() { errs[i] = fn(next + i) })
		}
		group.Wait()
		next += batch
		for _, e := range errs {
			if e == nil {
				succeeded++
			} else if err == nil {
				err = e
			}
		}
		if err != nil {
			return succeeded, err
		}
	}
	return succeeded, nil
}

// All calls fn for 0..count-1 concurrently, and returns the first error.
func All(count int, fn func(i int) error) error {
	errs := make([]error, count)
	var group sync.WaitGroup
	for i := range count {
		group.Go(func() { errs[i] = fn(i) })
	}
	group.Wait()
	for _, e := range errs {
		if e != nil {
			return e
		}
	}
	return nil
}
