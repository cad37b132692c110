package verb

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

var statusCreated = &metav1.Status{Status: metav1.StatusSuccess, Code: 201}

// bind assigns a pod to a node, once.
func (op *Operation) bind(ctx context.Context, b *corev1.Binding) (runtime.Object, error) {
	pods, ok := op.Engine.Kinds.Hub("", "pods")
	if !ok {
		return nil, wire.ErrPathNotFound
	}
	name := op.Name
	if op.Subresource == "" {
		name = b.Name // the old way: POST to bindings
	}
	if b.Name != name {
		return nil, apierrors.NewBadRequest("name in URL does not match name in Binding object")
	}
	if errs := validateBinding(b); len(errs) > 0 {
		return nil, api.Together(errs) // not a Status: upstream answers 500
	}
	update := *op
	update.Endpoint, update.Name, update.Subresource, update.Raw, update.FieldManager = pods, name, "binding", true, ""
	out, _, err := update.Update(ctx, false, func(_ context.Context, old runtime.Object) (runtime.Object, error) {
		pod := old.(*corev1.Pod).DeepCopy()
		if err := assignToNode(pod, b, op.Endpoint.Shared.Now()); err != nil {
			return nil, apierrors.NewConflict(schema.GroupResource{Resource: "pods/binding"}, name, err)
		}
		return pod, nil
	})
	if err != nil {
		return nil, err
	}
	op.beside = update.beside
	op.beside.committed(ctx, wire.Accessor(out).GetResourceVersion())
	return statusCreated.DeepCopy(), nil
}

func validateBinding(b *corev1.Binding) (errs field.ErrorList) {
	target := field.NewPath("target")
	if kind := b.Target.Kind; kind != "" && kind != "Node" {
		errs = append(errs, field.NotSupported(target.Child("kind"), kind, []string{"Node", "<empty>"}))
	}
	if b.Target.Name == "" {
		errs = append(errs, field.Required(target.Child("name"), ""))
	}
	return errs
}

func assignToNode(pod *corev1.Pod, b *corev1.Binding, now metav1.Time) error {
	switch {
	case b.UID != "" && b.UID != pod.UID:
		return fmt.Errorf("Precondition failed: UID in precondition: %v, UID in object meta: %v", b.UID, pod.UID)
	case b.ResourceVersion != "" && b.ResourceVersion != pod.ResourceVersion:
		return fmt.Errorf("Precondition failed: ResourceVersion in precondition: %v, ResourceVersion in object meta: %v", b.ResourceVersion, pod.ResourceVersion)
	case pod.DeletionTimestamp != nil:
		return fmt.Errorf("pod %s is being deleted, cannot be assigned to a host", pod.Name)
	case pod.Spec.NodeName != "":
		return fmt.Errorf("pod %v is already assigned to node %q", pod.Name, pod.Spec.NodeName)
	case len(pod.Spec.SchedulingGates) > 0:
		return fmt.Errorf("pod %v has non-empty .spec.schedulingGates", pod.Name)
	}
	pod.Spec.NodeName = b.Target.Name
	pod.Status.NominatedNodeName = "" // the nomination is obsolete once the pod is bound
	pod.Annotations = mergeMaps(pod.Annotations, b.Annotations)
	pod.Labels = mergeMaps(pod.Labels, b.Labels) // admission adds the node's topology labels
	setPodCondition(pod, corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now})
	return nil
}

func mergeMaps(into, from map[string]string) map[string]string {
	if len(from) == 0 {
		return into
	}
	out := maps.Clone(into)
	if out == nil {
		out = make(map[string]string, len(from))
	}
	maps.Copy(out, from)
	return out
}

// setPodCondition sets a condition by type. If the status stays the same, so does the transition
// time.
func setPodCondition(pod *corev1.Pod, c corev1.PodCondition) {
	for i := range pod.Status.Conditions {
		have := &pod.Status.Conditions[i]
		if have.Type != c.Type {
			continue
		}
		if have.Status == c.Status {
			c.LastTransitionTime = have.LastTransitionTime
		}
		*have = c
		return
	}
	pod.Status.Conditions = append(pod.Status.Conditions, c)
}
