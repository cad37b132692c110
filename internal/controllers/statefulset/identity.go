package statefulset

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
)

func podName(set *appsv1.StatefulSet, ordinal int) string {
	return set.Name + "-" + strconv.Itoa(ordinal)
}

// claimName returns the name of a replica's claim of a template.
func claimName(set *appsv1.StatefulSet, template string, ordinal int) string {
	return fmt.Sprintf("%s-%s-%d", template, set.Name, ordinal)
}

// podFor returns the pod of an ordinal from a revision's template.
func podFor(set *appsv1.StatefulSet, revision *appsv1.ControllerRevision, ordinal int) (*corev1.Pod, error) {
	template, err := controller.TemplateOf(revision)
	if err != nil {
		return nil, err
	}
	p := controller.PodFromTemplate(template, set, metav1.NewControllerRef(set, kind))
	p.GenerateName = set.Name + "-"
	p.Name = podName(set, ordinal)
	p.Spec.Hostname, p.Spec.Subdomain = p.Name, set.Spec.ServiceName
	identify(set, p, ordinal)
	p.Labels[appsv1.StatefulSetRevisionLabel] = revision.Name
	p.Spec.Volumes = withClaims(set, p.Spec.Volumes, ordinal)
	return p, nil
}

// identify sets the labels that identify the pod, and reports whether they were missing.
func identify(set *appsv1.StatefulSet, p *corev1.Pod, ordinal int) (changed bool) {
	want := map[string]string{appsv1.StatefulSetPodNameLabel: p.Name, appsv1.PodIndexLabel: strconv.Itoa(ordinal)}
	labels := maps.Clone(p.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, want)
	if maps.Equal(labels, p.Labels) {
		return false
	}
	p.Labels = labels
	return true
}

// withClaims replaces volumes by the replica's claims of the same names.
func withClaims(set *appsv1.StatefulSet, volumes []corev1.Volume, ordinal int) []corev1.Volume {
	var out []corev1.Volume
	isClaim := map[string]bool{}
	for _, t := range set.Spec.VolumeClaimTemplates {
		isClaim[t.Name] = true
		out = append(out, corev1.Volume{Name: t.Name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(set, t.Name, ordinal)},
		}})
	}
	for _, v := range volumes {
		if !isClaim[v.Name] {
			out = append(out, v)
		}
	}
	return out
}

// ensureClaims creates the replica's missing claims.
func (r *round) ensureClaims(ctx context.Context, pod *corev1.Pod, ordinal int) error {
	for _, t := range r.set.Spec.VolumeClaimTemplates {
		name := claimName(r.set, t.Name, ordinal)
		have, ok := r.claims.Get(r.set.Namespace, name)
		if ok {
			if have.DeletionTimestamp != nil {
				return fmt.Errorf("pvc %s is being deleted", name)
			}
			continue
		}
		claim := t.DeepCopy()
		claim.Namespace, claim.Name = r.set.Namespace, name
		claim.Labels = maps.Clone(claim.Labels)
		if claim.Labels == nil {
			claim.Labels = map[string]string{}
		}
		maps.Copy(claim.Labels, r.set.Spec.Selector.MatchLabels)
		_, refs := r.claimRefs(claim, pod, ordinal)
		claim.OwnerReferences = refs
		_, err := client.Create(ctx, r.env.Client, claim)
		if apierrors.IsAlreadyExists(err) {
			continue
		}
		if err != nil {
			r.env.Events.Eventf(r.set, nil, corev1.EventTypeWarning, "FailedCreate", "CreateClaim", "Create Claim %s for Pod %s in StatefulSet %s failed error: %s", name, pod.Name, r.set.Name, err)
			return fmt.Errorf("failed to create PVC %s: %w", name, err)
		}
		r.env.Events.Eventf(r.set, nil, corev1.EventTypeNormal, "SuccessfulCreate", "CreateClaim", "Create Claim %s Pod %s in StatefulSet %s success", name, pod.Name, r.set.Name)
	}
	return nil
}

// claimRefs returns a claim's owners by persistentVolumeClaimRetentionPolicy. The owner is the set,
// to delete the claim with the set, or a condemned pod, to delete it with the pod. changed reports
// whether the owners differ from the present ones.
func (r *round) claimRefs(claim *corev1.PersistentVolumeClaim, pod *corev1.Pod, ordinal int) (changed bool, refs []metav1.OwnerReference) {
	whenDeleted, whenScaled := appsv1.RetainPersistentVolumeClaimRetentionPolicyType, appsv1.RetainPersistentVolumeClaimRetentionPolicyType
	if p := r.set.Spec.PersistentVolumeClaimRetentionPolicy; p != nil {
		whenDeleted, whenScaled = p.WhenDeleted, p.WhenScaled
	}
	const remove = appsv1.DeletePersistentVolumeClaimRetentionPolicyType
	var owner *metav1.OwnerReference
	switch {
	case whenScaled == remove && !r.wanted(ordinal):
		if pod != nil && pod.UID != "" {
			owner = metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))
		}
	case whenDeleted == remove:
		owner = metav1.NewControllerRef(r.set, kind)
	}
	for _, ref := range claim.OwnerReferences {
		ours := ref.UID == r.set.UID || (ref.Kind == "Pod" && ref.Name == podName(r.set, ordinal)) || (ref.Kind == kind.Kind && ref.Name == r.set.Name)
		if !ours {
			if ref.Controller != nil && *ref.Controller {
				return false, claim.OwnerReferences // leave it to its other controller
			}
			refs = append(refs, ref)
		}
	}
	if owner != nil {
		owner.BlockOwnerDeletion = new(bool)
		*owner.BlockOwnerDeletion = true
		refs = append(refs, *owner)
	}
	return !equality.Semantic.DeepEqual(refs, claim.OwnerReferences) && !sameRefs(refs, claim.OwnerReferences), refs
}

func sameRefs(a, b []metav1.OwnerReference) bool {
	return slices.EqualFunc(a, b, func(x, y metav1.OwnerReference) bool {
		return x.UID == y.UID && (x.Controller != nil && *x.Controller) == (y.Controller != nil && *y.Controller)
	})
}

// updateClaims writes the owners of a pod's claims that differ from the retention policy.
func (r *round) updateClaims(ctx context.Context, pod *corev1.Pod, ordinal int) error {
	for _, t := range r.set.Spec.VolumeClaimTemplates {
		claim, ok := r.claims.Get(r.set.Namespace, claimName(r.set, t.Name, ordinal))
		if !ok {
			continue
		}
		changed, refs := r.claimRefs(claim, pod, ordinal)
		if !changed {
			continue
		}
		claim = claim.DeepCopy()
		claim.OwnerReferences = refs
		if _, err := client.Update(ctx, r.env.Client, claim); err != nil && !apierrors.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// staleClaim reports whether a claim of the ordinal belongs to an earlier pod and will be deleted
// with it. A new pod has to wait for that.
func (r *round) staleClaim(ordinal int) bool {
	for _, t := range r.set.Spec.VolumeClaimTemplates {
		claim, ok := r.claims.Get(r.set.Namespace, claimName(r.set, t.Name, ordinal))
		if !ok {
			continue
		}
		for _, ref := range claim.OwnerReferences {
			if ref.Kind == "Pod" && ref.Name == podName(r.set, ordinal) {
				if p, ok := r.statefulSets.pods.Get(r.set.Namespace, ref.Name); !ok || p.UID != ref.UID {
					return true
				}
			}
		}
	}
	return false
}
