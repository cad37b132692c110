package volume

import (
	"context"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/knarr-project/knarr/internal/client"
)

// bind binds a claim to a volume in four steps: the volume names the claim, the volume is Bound,
// the claim names the volume, the claim is Bound. An earlier call may have stopped after any step.
func (b *binder) bind(ctx context.Context, c *corev1.PersistentVolumeClaim, v *corev1.PersistentVolume) error {
	v, err := b.nameClaim(ctx, v, c)
	if err != nil {
		return err
	}
	if err := b.volumePhase(ctx, v, corev1.VolumeBound, ""); err != nil {
		return err
	}
	changed := c.DeepCopy()
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	if changed.Spec.VolumeName != v.Name {
		changed.Spec.VolumeName = v.Name
		changed.Annotations[boundByController] = "yes"
	}
	changed.Annotations[bindCompleted] = "yes"
	if c.Spec.VolumeName != changed.Spec.VolumeName || !maps.Equal(c.Annotations, changed.Annotations) {
		updated, err := client.Update(ctx, b.env.Client, changed)
		if err != nil {
			return err
		}
		c = updated
	}
	return b.claimPhase(ctx, c, corev1.ClaimBound, v)
}

// nameClaim writes the claim into the volume. The write fails if another claim got the volume
// meanwhile (compare-and-swap).
func (b *binder) nameClaim(ctx context.Context, v *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) (*corev1.PersistentVolume, error) {
	if v.Spec.ClaimRef != nil && v.Spec.ClaimRef.UID == c.UID {
		return v, nil
	}
	changed := v.DeepCopy()
	if changed.Spec.ClaimRef == nil {
		if changed.Annotations == nil {
			changed.Annotations = map[string]string{}
		}
		changed.Annotations[boundByController] = "yes"
	}
	changed.Spec.ClaimRef = &corev1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: c.UID, ResourceVersion: c.ResourceVersion}
	return client.Update(ctx, b.env.Client, changed)
}

// volume brings a volume to the phase that its claim, or the lack of one, demands.
func (b *binder) volume(ctx context.Context, v *corev1.PersistentVolume) error {
	ref := v.Spec.ClaimRef
	if ref == nil || ref.UID == "" {
		// Free, or reserved for a claim that does not exist yet.
		return b.volumePhase(ctx, v, corev1.VolumeAvailable, "")
	}
	c, ok := b.claims.Get(ref.Namespace, ref.Name)
	if !ok || c.UID != ref.UID {
		fresh, err := client.Get[*corev1.PersistentVolumeClaim](ctx, b.env.Client, ref.Namespace, ref.Name)
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		if err != nil || fresh.UID != ref.UID {
			return b.release(ctx, v)
		}
		c = fresh
	}
	switch c.Spec.VolumeName {
	case v.Name:
		return b.volumePhase(ctx, v, corev1.VolumeBound, "")
	case "":
		return nil // the claim's own call continues
	}
	// The claim has another volume. Free this volume if we reserved it; release it if its
	// provisioner made it for the claim.
	if v.Annotations[provisionedBy] != "" && v.Spec.PersistentVolumeReclaimPolicy == corev1.PersistentVolumeReclaimDelete {
		return b.release(ctx, v)
	}
	changed := v.DeepCopy()
	if v.Annotations[boundByController] != "" {
		changed.Spec.ClaimRef = nil
		delete(changed.Annotations, boundByController)
	} else {
		changed.Spec.ClaimRef.UID = "" // the user reserved it by the claim's name
	}
	updated, err := client.Update(ctx, b.env.Client, changed)
	if err != nil {
		return err
	}
	return b.volumePhase(ctx, updated, corev1.VolumeAvailable, "")
}

// release applies the reclaim policy to a volume whose claim is gone. Only its provisioner can
// delete the storage behind a volume, so an unprovisioned volume with policy Delete fails.
func (b *binder) release(ctx context.Context, v *corev1.PersistentVolume) error {
	if v.Status.Phase == corev1.VolumeFailed {
		return nil
	}
	if err := b.volumePhase(ctx, v, corev1.VolumeReleased, ""); err != nil {
		return err
	}
	fresh, ok := b.volumes.Get("", v.Name)
	if !ok || fresh.DeletionTimestamp != nil {
		return nil
	}
	v = fresh
	switch v.Spec.PersistentVolumeReclaimPolicy {
	case corev1.PersistentVolumeReclaimDelete:
		if v.Annotations[provisionedBy] != "" || v.Spec.CSI != nil {
			return nil // the provisioner acts on the phase Released
		}
		message := fmt.Sprintf("error getting deleter volume plugin for volume %q: no deletable volume plugin matched", v.Name)
		b.event(v, corev1.EventTypeWarning, "VolumeFailedDelete", "%s", message)
		return b.volumePhase(ctx, v, corev1.VolumeFailed, message)
	case corev1.PersistentVolumeReclaimRecycle:
		const message = "No recycler plugin found for the volume!"
		b.event(v, corev1.EventTypeWarning, "VolumeFailedRecycle", message)
		return b.volumePhase(ctx, v, corev1.VolumeFailed, message)
	}
	return nil
}

func (b *binder) volumePhase(ctx context.Context, v *corev1.PersistentVolume, phase corev1.PersistentVolumePhase, message string) error {
	if v.Status.Phase == phase && v.Status.Message == message {
		return nil
	}
	changed := v.DeepCopy()
	if changed.Status.Phase != phase {
		now := metav1.Now()
		changed.Status.LastPhaseTransitionTime = &now
	}
	changed.Status.Phase, changed.Status.Message = phase, message
	if equality.Semantic.DeepEqual(v.Status, changed.Status) {
		return nil
	}
	_, err := client.UpdateStatus(ctx, b.env.Client, changed)
	return err
}

// selects reports whether a claim's selector, if any, matches.
func selects(selector *metav1.LabelSelector, have map[string]string) bool {
	if selector == nil {
		return true
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && s.Matches(labels.Set(have))
}
