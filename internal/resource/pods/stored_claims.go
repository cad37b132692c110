package pods

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

// The claim template of an ephemeral volume may have only labels and annotations as metadata.
// Objects stored before this check existed may have more. Their updates must stay possible;
// otherwise their finalizers could not be removed.

// keepsClaimMetadata lets updates of a kind keep the illegal claim metadata that the ephemeral
// volumes of its pod or pod template had.
func keepsClaimMetadata(s *strategy.Strategy) *strategy.Strategy {
	s.ValidateUpdate, s.ValidateStatus = keepingClaimMetadata(s.ValidateUpdate), keepingClaimMetadata(s.ValidateStatus)
	for name, sub := range s.Subresource {
		sub.Validate = keepingClaimMetadata(sub.Validate)
		s.Subresource[name] = sub
	}
	return s
}

// keepingClaimMetadata validates copies of both objects without the unchanged metadata. Filtering
// the errors afterwards would not be enough: the mounts of an invalid volume cause further errors.
func keepingClaimMetadata(check func(obj, old runtime.Object) field.ErrorList) func(obj, old runtime.Object) field.ErrorList {
	if check == nil {
		return nil
	}
	return func(obj, old runtime.Object) field.ErrorList {
		if kept := keptClaimMetadata(podSpecOf(obj), podSpecOf(old)); len(kept) > 0 {
			obj, old = obj.DeepCopyObject(), old.DeepCopyObject()
			for _, at := range kept {
				reduceClaimMetadata(&podSpecOf(obj).Volumes[at.is])
				reduceClaimMetadata(&podSpecOf(old).Volumes[at.was])
			}
		}
		return check(obj, old)
	}
}

// places are a volume's index in the new spec and in the old one.
type places struct{ is, was int }

// keptClaimMetadata finds the volumes whose claims have the same illegal metadata as before.
func keptClaimMetadata(spec, before *corev1.PodSpec) []places {
	var kept []places
	volumes := firstPlaces(len(before.Volumes), func(i int) string { return before.Volumes[i].Name })
	for i := range spec.Volumes {
		v := &spec.Volumes[i]
		more := moreClaimMetadata(v)
		if more == nil || len(validate.TemplateMeta(more, field.NewPath("metadata"))) == 0 {
			continue
		}
		if was, ok := volumes[v.Name]; ok && validate.Equal(more, moreClaimMetadata(&before.Volumes[was])) {
			kept = append(kept, places{i, was})
		}
	}
	return kept
}

// moreClaimMetadata returns the metadata of an ephemeral volume's claim without labels and
// annotations; nil for other volumes.
func moreClaimMetadata(v *corev1.Volume) *metav1.ObjectMeta {
	if v.Ephemeral == nil || v.Ephemeral.VolumeClaimTemplate == nil {
		return nil
	}
	m := v.Ephemeral.VolumeClaimTemplate.ObjectMeta
	m.Labels, m.Annotations = nil, nil
	return &m
}

func reduceClaimMetadata(v *corev1.Volume) {
	m := &v.Ephemeral.VolumeClaimTemplate.ObjectMeta
	*m = metav1.ObjectMeta{Labels: m.Labels, Annotations: m.Annotations}
}
