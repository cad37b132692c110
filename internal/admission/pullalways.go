package admission

import (
	"context"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// alwaysPullImages makes every node ask the registry, so that nobody uses an image that only others may pull.
type alwaysPullImages struct{ base }

func newAlwaysPullImages() Plugin {
	return alwaysPullImages{base{"AlwaysPullImages", []Operation{Create, Update}}}
}

// Admit implements Mutator.
func (p alwaysPullImages) Admit(_ context.Context, a *Attributes) error {
	p.policies(a, func(policy *corev1.PullPolicy, _ *field.Path) { *policy = corev1.PullAlways })
	return nil
}

// Validate implements Validator: what runs later may have changed the policies again. Upstream answers 500.
func (p alwaysPullImages) Validate(_ context.Context, a *Attributes) error {
	var errs []error
	p.policies(a, func(policy *corev1.PullPolicy, path *field.Path) {
		if *policy != corev1.PullAlways {
			errs = append(errs, a.forbid(field.NotSupported(path, *policy, []corev1.PullPolicy{corev1.PullAlways})))
		}
	})
	if len(errs) == 0 {
		return nil
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: utilerrors.NewAggregate(errs).Error()}}
}

// policies visits the pull policies of everything that a pod pulls.
func (p alwaysPullImages) policies(a *Attributes, visit func(*corev1.PullPolicy, *field.Path)) {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || !a.is("", "pods", "") && !a.is("", "pods", "ephemeralcontainers") {
		return
	}
	spec := field.NewPath("spec")
	for i := range pod.Spec.InitContainers {
		visit(&pod.Spec.InitContainers[i].ImagePullPolicy, spec.Child("initContainers").Index(i).Child("imagePullPolicy"))
	}
	for i := range pod.Spec.Containers {
		visit(&pod.Spec.Containers[i].ImagePullPolicy, spec.Child("containers").Index(i).Child("imagePullPolicy"))
	}
	for i := range pod.Spec.EphemeralContainers {
		visit(&pod.Spec.EphemeralContainers[i].ImagePullPolicy, spec.Child("ephemeralContainers").Index(i).Child("imagePullPolicy"))
	}
	for i := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[i].Image; image != nil && image.Reference != "" {
			visit(&image.PullPolicy, spec.Child("volumes").Index(i).Child("image", "pullPolicy"))
		}
	}
}
