package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/validation"

	authwebhook "github.com/knarr-project/knarr/internal/auth/webhook"
)

// ImagePolicy holds the settings of ImagePolicyWebhook (reference, "Admission Control in
// Kubernetes").
type ImagePolicy struct {
	KubeConfigFile string `json:"kubeConfigFile"`
	// AllowTTL and DenyTTL are the seconds that answers are cached. 0 means the default (5 minutes,
	// 30 seconds), -1 no cache.
	AllowTTL int64 `json:"allowTTL"`
	DenyTTL  int64 `json:"denyTTL"`
	// RetryBackoff is in milliseconds; 0 means 500, -1 no pause.
	RetryBackoff int64 `json:"retryBackoff"`
	// DefaultAllow admits pods when the server is unreachable.
	DefaultAllow bool `json:"defaultAllow"`
}

// settingOff disables a duration.
const settingOff = -1

// normal sets the defaults and checks upstream's limits. A disabled duration becomes 0.
func (p *ImagePolicy) normal() error {
	for _, f := range []struct {
		name                 string
		value                *int64
		initial, least, most int64
	}{
		{"allowTTL", &p.AllowTTL, 300, 1, 1800}, {"denyTTL", &p.DenyTTL, 30, 1, 1800}, {"retryBackoff", &p.RetryBackoff, 500, 1, 300_000},
	} {
		switch {
		case *f.value == settingOff:
			*f.value = 0
		case *f.value == 0:
			*f.value = f.initial
		case *f.value < f.least || *f.value > f.most:
			return fmt.Errorf("imagePolicy.%s is %d, not between %d and %d", f.name, *f.value, f.least, f.most)
		}
	}
	if p.KubeConfigFile == "" {
		return errors.New("imagePolicy.kubeConfigFile is missing")
	}
	return nil
}

// imagePolicy asks an external server whether a pod may use its images.
type imagePolicy struct {
	base
	config ImagePolicy
	server *authwebhook.Asker
	// answers is the cache, by request.
	answers *utilcache.LRUExpireCache
}

const (
	rememberedImageReviews = 1024
	imagePolicyDomain      = "image-policy.k8s.io/"
	imagePolicyAnnotation  = "imagepolicywebhook." + imagePolicyDomain
)

func newImagePolicy(config *ImagePolicy, now func() time.Time) (Plugin, error) {
	p := imagePolicy{base: base{"ImagePolicyWebhook", []Operation{Create, Update}}, answers: utilcache.NewLRUExpireCacheWithClock(rememberedImageReviews, clockFunc(now))}
	if config == nil {
		return p, nil
	}
	p.config = *config
	var err error
	p.server, err = authwebhook.NewAsker(config.KubeConfigFile, time.Duration(config.RetryBackoff)*time.Millisecond)
	if err != nil {
		return nil, fmt.Errorf("image policy webhook %w", err)
	}
	return p, nil
}

type clockFunc func() time.Time

func (f clockFunc) Now() time.Time { return f() }

// Validate implements Validator.
func (p imagePolicy) Validate(ctx context.Context, a *Attributes) error {
	pod, ok := a.Object.(*corev1.Pod)
	if !ok || !a.is("", "pods", "") && !a.is("", "pods", "ephemeralcontainers") {
		return nil
	}
	images := imagesOf(pod)
	if old, ok := a.OldObject.(*corev1.Pod); ok && slices.Equal(images, imagesOf(old)) {
		return nil
	}
	review := &imagepolicyv1alpha1.ImageReview{
		TypeMeta: metav1.TypeMeta{Kind: "ImageReview", APIVersion: imagepolicyv1alpha1.SchemeGroupVersion.String()},
		Spec:     imagepolicyv1alpha1.ImageReviewSpec{Namespace: a.Namespace},
	}
	for _, image := range images {
		review.Spec.Containers = append(review.Spec.Containers, imagepolicyv1alpha1.ImageReviewContainerSpec{Image: image})
	}
	for key, value := range pod.Annotations {
		if strings.Contains(key, "."+imagePolicyDomain) {
			if review.Spec.Annotations == nil {
				review.Spec.Annotations = map[string]string{}
			}
			review.Spec.Annotations[key] = value
		}
	}
	status, err := p.ask(ctx, review)
	if err != nil {
		if p.config.DefaultAllow {
			a.Annotate(imagePolicyAnnotation+"failed-open", "true")
			return nil
		}
		return a.forbid(err)
	}
	for key, value := range status.AuditAnnotations {
		if key = imagePolicyAnnotation + key; len(validation.IsQualifiedName(key)) == 0 {
			a.Annotate(key, value)
		}
	}
	switch {
	case status.Allowed:
		return nil
	case status.Reason != "":
		return a.forbid(fmt.Errorf("image policy webhook backend denied one or more images: %s", status.Reason))
	}
	return a.forbid(errors.New("one or more images rejected by webhook backend"))
}

func (p imagePolicy) ask(ctx context.Context, review *imagepolicyv1alpha1.ImageReview) (*imagepolicyv1alpha1.ImageReviewStatus, error) {
	raw, err := json.Marshal(review.Spec)
	if err != nil {
		return nil, err
	}
	question := string(raw)
	if known, ok := p.answers.Get(question); ok {
		return known.(*imagepolicyv1alpha1.ImageReviewStatus), nil
	}
	if err := p.server.Ask(ctx, review); err != nil {
		return nil, err
	}
	keep := p.config.DenyTTL
	if review.Status.Allowed {
		keep = p.config.AllowTTL
	}
	if keep > 0 {
		p.answers.Add(question, &review.Status, time.Duration(keep)*time.Second)
	}
	return &review.Status, nil
}

// imagesOf returns the images of all containers. As upstream, those of main containers come first.
func imagesOf(pod *corev1.Pod) (images []string) {
	for i := range pod.Spec.Containers {
		images = append(images, pod.Spec.Containers[i].Image)
	}
	for i := range pod.Spec.InitContainers {
		images = append(images, pod.Spec.InitContainers[i].Image)
	}
	for i := range pod.Spec.EphemeralContainers {
		images = append(images, pod.Spec.EphemeralContainers[i].Image)
	}
	return images
}
