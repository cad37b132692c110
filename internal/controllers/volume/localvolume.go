package volume

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/volume/local"
)

// volume takes the next step for a local volume.
func (l *localVolumes) volume(ctx context.Context, v *corev1.PersistentVolume) error {
	switch {
	case v.DeletionTimestamp != nil:
		return l.deleted(ctx, v)
	case v.Status.Phase == corev1.VolumeReleased && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete:
		return l.delete(ctx, v)
	case v.Annotations[local.PendingAnnotation] != "":
		return l.pending(ctx, v)
	}
	return nil
}

func (l *localVolumes) delete(ctx context.Context, v *corev1.PersistentVolume) error {
	uid := v.UID
	err := client.Delete[*corev1.PersistentVolume](ctx, l.env.Client, "", v.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// deleted lets a deleted volume go when its content is gone, or stays by its policy.
func (l *localVolumes) deleted(ctx context.Context, v *corev1.PersistentVolume) error {
	if !slices.Contains(v.Finalizers, local.Finalizer) {
		return nil
	}
	answer, node, answered := l.answerOf(v)
	switch {
	case v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete:
	case node == nil: // its disk went with it
	case answered && answer.State == local.Removed:
	case v.Annotations[local.PendingAnnotation] == local.PendingMake && !nodeReady(node):
		// No pod has used the volume. The node removes its content at its return.
	case answered && answer.State == local.Failed:
		l.event(v, corev1.EventTypeWarning, "VolumeFailedDelete", "node %s cannot remove the content: %s", node.Name, answer.Message)
		return nil
	default:
		return nil
	}
	return setFinalizers(ctx, l.env.Client, v, slices.DeleteFunc(slices.Clone(v.Finalizers), func(f string) bool { return f == local.Finalizer }))
}

// pending reads the node's answer for a volume that it makes or grows.
func (l *localVolumes) pending(ctx context.Context, v *corev1.PersistentVolume) error {
	ref := v.Spec.ClaimRef
	if ref == nil {
		return nil
	}
	c, ok := l.claims.Get(ref.Namespace, ref.Name)
	making := v.Annotations[local.PendingAnnotation] == local.PendingMake
	if !ok || c.UID != ref.UID {
		if making {
			return l.delete(ctx, v) // no claim has ever been bound to it
		}
		return nil
	}
	answer, node, answered := l.answerOf(v)
	size := v.Spec.Capacity[corev1.ResourceStorage]
	switch {
	case answered && answer.State == local.Ready && answer.Bytes >= size.Value():
		return l.done(ctx, c, v, making)
	case !making && answered && answer.State == local.Failed:
		l.event(c, corev1.EventTypeWarning, "VolumeResizeFailed", "node %s cannot grow the volume: %s", node.Name, answer.Message)
		return nil
	case !making:
		return nil
	case node == nil:
		return l.abandon(ctx, c, v, "its node is gone")
	case !nodeReady(node):
		return l.abandon(ctx, c, v, "its node is not ready")
	case answered && answer.State == local.Failed:
		return l.abandon(ctx, c, v, "node "+node.Name+": "+answer.Message)
	}
	return nil
}

// abandon deletes a volume that could not be made, and makes the scheduler choose a node again. The
// claim waits until the volume is gone, since the next one has the same name.
func (l *localVolumes) abandon(ctx context.Context, c *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume, why string) error {
	if err := l.delete(ctx, v); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return l.giveUp(ctx, c, "cannot make the volume: "+why)
}

// done ends a step: a new volume can be bound, a grown one tells its claim.
func (l *localVolumes) done(ctx context.Context, c *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume, making bool) error {
	changed := v.DeepCopy()
	delete(changed.Annotations, local.PendingAnnotation)
	if _, err := client.Update(ctx, l.env.Client, changed); err != nil {
		return err
	}
	if !making {
		return nil // the volume's event leads to its claim
	}
	l.event(c, corev1.EventTypeNormal, "ProvisioningSucceeded", "Successfully provisioned volume %s", v.Name)
	if local.Kind(v.Annotations[local.KindAnnotation]) == local.Plain {
		l.event(c, corev1.EventTypeNormal, "SizeNotEnforced", "the volume can outgrow its size: the file system of node %s has no project quota; a class with the parameter %s: %s enforces sizes", v.Annotations[local.NodeAnnotation], local.ParameterEnforce, local.EnforceImage)
	}
	return nil
}

// growth takes the next step for a claim whose request is larger than its volume. The volume's
// capacity grows first, so that the space is taken; then its node grows the content.
func (l *localVolumes) growth(ctx context.Context, c *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) error {
	want, have := *c.Spec.Resources.Requests.Storage(), v.Spec.Capacity[corev1.ResourceStorage]
	switch {
	case v.DeletionTimestamp != nil:
		return nil
	case v.Annotations[local.PendingAnnotation] == local.PendingGrow && want.Cmp(have) < 0 && want.Cmp(*c.Status.Capacity.Storage()) >= 0:
		return l.askForLess(ctx, c, v, want)
	case v.Annotations[local.PendingAnnotation] != "":
		return nil
	case want.Cmp(have) > 0:
		return l.beginGrowth(ctx, c, v, want)
	case have.Cmp(*c.Status.Capacity.Storage()) > 0 && c.Status.Phase == corev1.ClaimBound:
		return l.endGrowth(ctx, c, have)
	}
	return nil
}

func (l *localVolumes) beginGrowth(ctx context.Context, c *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume, want resource.Quantity) error {
	name, have := v.Annotations[local.NodeAnnotation], v.Spec.Capacity[corev1.ResourceStorage]
	node, ok := l.nodes.Get("", name)
	if !ok {
		l.event(c, corev1.EventTypeWarning, "VolumeResizeFailed", "node %s of the volume does not exist", name)
		return nil
	}
	report, err := local.ParseReport(node)
	if err != nil {
		return err
	}
	folder := report.Folders[v.Annotations[local.FolderAnnotation]]
	if free := l.free(name, v.Annotations[local.FolderAnnotation], folder); want.Value()-have.Value() > free {
		l.event(c, corev1.EventTypeWarning, "VolumeResizeFailed", "node %s has %s left in %s, and the volume would grow from %s to %s", name, resource.NewQuantity(free, resource.BinarySI), folder.Path, have.String(), want.String())
		return nil
	}
	changed := c.DeepCopy()
	changed.Status.AllocatedResources = corev1.ResourceList{corev1.ResourceStorage: want}
	changed.Status.AllocatedResourceStatuses = map[corev1.ResourceName]corev1.ClaimResourceStatus{corev1.ResourceStorage: corev1.PersistentVolumeClaimNodeResizePending}
	changed.Status.Conditions = append(withoutResizing(c.Status.Conditions), corev1.PersistentVolumeClaimCondition{
		Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(l.env.Now()),
		Message: "Waiting for the node to grow the volume.",
	})
	if _, err := client.UpdateStatus(ctx, l.env.Client, changed); err != nil {
		return err
	}
	larger := v.DeepCopy()
	larger.Spec.Capacity[corev1.ResourceStorage] = want
	larger.Annotations[local.PendingAnnotation] = local.PendingGrow
	_, err = client.Update(ctx, l.env.Client, larger)
	return err
}

// askForLess lowers the size of a growth that has not succeeded, as its user did in the claim (KEP
// 1790).
func (l *localVolumes) askForLess(ctx context.Context, c *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume, want resource.Quantity) error {
	changed := c.DeepCopy()
	changed.Status.AllocatedResources = corev1.ResourceList{corev1.ResourceStorage: want}
	if _, err := client.UpdateStatus(ctx, l.env.Client, changed); err != nil {
		return err
	}
	smaller := v.DeepCopy()
	smaller.Spec.Capacity[corev1.ResourceStorage] = want
	_, err := client.Update(ctx, l.env.Client, smaller)
	return err
}

func (l *localVolumes) endGrowth(ctx context.Context, c *corev1.PersistentVolumeClaim, have resource.Quantity) error {
	changed := c.DeepCopy()
	if changed.Status.Capacity == nil {
		changed.Status.Capacity = corev1.ResourceList{}
	}
	changed.Status.Capacity[corev1.ResourceStorage] = have
	changed.Status.AllocatedResources = corev1.ResourceList{corev1.ResourceStorage: have}
	changed.Status.AllocatedResourceStatuses = nil
	changed.Status.Conditions = withoutResizing(c.Status.Conditions)
	if equality.Semantic.DeepEqual(c.Status, changed.Status) {
		return nil
	}
	if _, err := client.UpdateStatus(ctx, l.env.Client, changed); err != nil {
		return err
	}
	l.event(c, corev1.EventTypeNormal, "FileSystemResizeSuccessful", "the volume has %s now", have.String())
	return nil
}

func withoutResizing(conditions []corev1.PersistentVolumeClaimCondition) []corev1.PersistentVolumeClaimCondition {
	return slices.DeleteFunc(slices.Clone(conditions), func(c corev1.PersistentVolumeClaimCondition) bool {
		return c.Type == corev1.PersistentVolumeClaimResizing || c.Type == corev1.PersistentVolumeClaimFileSystemResizePending
	})
}
