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

// alwaysPullImages makes nodes check the registry for every image, so that a pod cannot use an
// image pulled with another's credentials.
type alwaysPullImages struct{ base }

func newAlwaysPullImages() Plugin {
	return alwaysPullImages{base{"AlwaysPullImages", []Operation{Create, Update}}}
}

// Admit implements Mutator.
func (p alwaysPullImages) Admit(_ context.Context, a *Attributes) error {
	p.policies(a, func(policy *corev1.PullPolicy, _ *field.Path) { *policy = corev1.PullAlways })
	return nil
}

// Validate implements Validator. Later mutators may have changed the policies again. As upstream,
// the refusal has code 500.
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

// policies visits all pull policies of a pod that gets a new image. It skips a pod without new
// images: it may be older than the plugin, its policies are immutable, and the write may concern
// something else.
func (p alwaysPullImages) policies(a *Attributes, visit func(*corev1.PullPolicy, *field.Path)) {
	pod, ok := a.pod()
	if !ok {
		return
	}
	if old, ok := a.OldObject.(*corev1.Pod); ok && a.Operation == Update && !hasNewImages(pod, old) {
		return
	}
	visitPulls(pod, func(_ string, policy *corev1.PullPolicy, path *field.Path) { visit(policy, path) })
}

// hasNewImages reports whether the pod has an image that the old pod does not have.
func hasNewImages(pod, old *corev1.Pod) bool {
	had, brings := map[string]bool{}, false
	visitPulls(old, func(image string, _ *corev1.PullPolicy, _ *field.Path) { had[image] = true })
	visitPulls(pod, func(image string, _ *corev1.PullPolicy, _ *field.Path) { brings = brings || !had[image] })
	return brings
}

func visitPulls(pod *corev1.Pod, visit func(image string, policy *corev1.PullPolicy, path *field.Path)) {
	spec := field.NewPath("spec")
	container := func(image string, policy *corev1.PullPolicy, list string, i int) {
		visit(image, policy, spec.Child(list).Index(i).Child("imagePullPolicy"))
	}
	for i := range pod.Spec.InitContainers {
		container(pod.Spec.InitContainers[i].Image, &pod.Spec.InitContainers[i].ImagePullPolicy, "initContainers", i)
	}
	for i := range pod.Spec.Containers {
		container(pod.Spec.Containers[i].Image, &pod.Spec.Containers[i].ImagePullPolicy, "containers", i)
	}
	for i := range pod.Spec.EphemeralContainers {
		container(pod.Spec.EphemeralContainers[i].Image, &pod.Spec.EphemeralContainers[i].ImagePullPolicy, "ephemeralContainers", i)
	}
	for i := range pod.Spec.Volumes {
		if image := pod.Spec.Volumes[i].Image; image != nil && image.Reference != "" {
			visit(image.Reference, &image.PullPolicy, spec.Child("volumes").Index(i).Child("image", "pullPolicy"))
		}
	}
}
