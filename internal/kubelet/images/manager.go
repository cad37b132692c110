package images

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/distribution/reference"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/kubelet/spec"
)

// Waiting reasons of containers whose image is missing.
const (
	ReasonErrImagePull     = "ErrImagePull"
	ReasonBackOff          = "ImagePullBackOff"
	ReasonNeverPull        = "ErrImageNeverPull"
	ReasonInvalidName      = "InvalidImageName"
	ReasonInspectFailed    = "ImageInspectError"
	ReasonRegistryUnusable = "RegistryUnavailable"
)

// Error is the reason why an image is missing. Reason is the container's waiting reason.
type Error struct {
	Reason, Message string
	// RetryAt is when to try again.
	RetryAt time.Time
}

func (e *Error) Error() string { return e.Message }

// Eventf records an event about the container.
type Eventf func(eventType, reason, note string, args ...any)

// Manager pulls images. It is safe for concurrent use.
type Manager struct {
	Images internalapi.ImageManagerService
	// Secret reads a pull secret.
	Secret func(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// Parallel limits concurrent pulls; nil means no limit.
	Parallel chan struct{}
	// Limit bounds the rate of pulls; nil means no limit.
	Limit flowcontrol.RateLimiter
	Now   func() time.Time

	backoff backoffs
}

// NewManager makes a Manager. At most parallel pulls run at the same time; 0 means no limit.
func NewManager(images internalapi.ImageManagerService, parallel int, secret func(ctx context.Context, namespace, name string) (*corev1.Secret, error)) *Manager {
	m := &Manager{Images: images, Secret: secret, Now: time.Now, backoff: backoffs{entries: map[string]*entry{}}}
	if parallel > 0 {
		m.Parallel = make(chan struct{}, parallel)
	}
	return m
}

// Image is an image on this machine.
type Image struct {
	Ref  string // the runtime's reference
	User spec.ImageUser
}

// Ensure makes sure that the image is present, according to the pull policy, and returns the
// runtime's reference to it.
func (m *Manager) Ensure(ctx context.Context, pod *corev1.Pod, image string, policy corev1.PullPolicy, sandbox *runtimeapi.PodSandboxConfig, event Eventf) (*Image, error) {
	name, err := withTag(image)
	if err != nil {
		message := fmt.Sprintf("Failed to apply default image tag %q: %v", image, err)
		event(corev1.EventTypeWarning, "InspectFailed", "%s", message)
		return nil, &Error{Reason: ReasonInvalidName, Message: message, RetryAt: m.Now().Add(10 * time.Second)}
	}
	if policy == "" {
		policy = corev1.PullIfNotPresent
	}
	imageSpec := &runtimeapi.ImageSpec{Image: name, UserSpecifiedImage: image}
	status, err := m.Images.ImageStatus(ctx, imageSpec, false)
	if err != nil {
		message := fmt.Sprintf("Failed to inspect image %q: %v", image, err)
		event(corev1.EventTypeWarning, "InspectFailed", "%s", message)
		return nil, &Error{Reason: ReasonInspectFailed, Message: message, RetryAt: m.Now().Add(2 * time.Second)}
	}
	present := status.GetImage() != nil && status.Image.Id != ""
	if present && policy != corev1.PullAlways {
		event(corev1.EventTypeNormal, "Pulled", "Container image %q already present on machine and can be accessed by the pod", image)
		return found(status.Image), nil
	}
	if policy == corev1.PullNever {
		message := fmt.Sprintf("Container image %q is not present with pull policy of Never", image)
		event(corev1.EventTypeWarning, ReasonNeverPull, "%s", message)
		return nil, &Error{Reason: ReasonNeverPull, Message: message, RetryAt: m.Now().Add(10 * time.Second)}
	}
	return m.pull(ctx, pod, image, imageSpec, sandbox, event)
}

func found(i *runtimeapi.Image) *Image {
	out := &Image{Ref: i.Id, User: spec.ImageUser{Name: i.Username}}
	if i.Uid != nil {
		out.User.UID = &i.Uid.Value
	}
	return out
}

func (m *Manager) pull(ctx context.Context, pod *corev1.Pod, image string, imageSpec *runtimeapi.ImageSpec, sandbox *runtimeapi.PodSandboxConfig, event Eventf) (*Image, error) {
	key := string(pod.UID) + "_" + image
	if at := m.backoff.until(key, m.Now()); !at.IsZero() {
		message := fmt.Sprintf("Back-off pulling image %q", image)
		event(corev1.EventTypeNormal, "BackOff", "%s", message)
		return nil, &Error{Reason: ReasonBackOff, Message: message, RetryAt: at}
	}
	asked := m.Now()
	if m.Parallel != nil {
		select {
		case m.Parallel <- struct{}{}:
			defer func() { <-m.Parallel }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if m.Limit != nil {
		if err := m.Limit.Wait(ctx); err != nil {
			return nil, err
		}
	}
	started := m.Now()
	event(corev1.EventTypeNormal, "Pulling", "Pulling image %q", image)
	ref, err := m.pullWithSecrets(ctx, pod, imageSpec, sandbox)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		m.backoff.failed(key, m.Now())
		event(corev1.EventTypeWarning, "Failed", "Failed to pull image %q: %v", image, err)
		return nil, &Error{Reason: ReasonErrImagePull, Message: err.Error(), RetryAt: m.Now()}
	}
	status, err := m.Images.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: ref, UserSpecifiedImage: image}, false)
	if err != nil || status.GetImage() == nil {
		return nil, &Error{Reason: ReasonInspectFailed, Message: fmt.Sprintf("Failed to inspect image %q after pulling it: %v", image, err), RetryAt: m.Now().Add(2 * time.Second)}
	}
	event(corev1.EventTypeNormal, "Pulled", "Successfully pulled image %q in %v (%v including waiting). Image size: %v bytes.", image,
		m.Now().Sub(started).Truncate(time.Millisecond), m.Now().Sub(asked).Truncate(time.Millisecond), status.Image.Size)
	return found(status.Image), nil
}

// pullWithSecrets tries each credential that matches the image's registry, the most specific first,
// and finally none.
func (m *Manager) pullWithSecrets(ctx context.Context, pod *corev1.Pod, imageSpec *runtimeapi.ImageSpec, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	var creds []credential
	for _, ref := range pod.Spec.ImagePullSecrets {
		s, err := m.Secret(ctx, pod.Namespace, ref.Name)
		if err != nil {
			continue // as in upstream, a missing pull secret is not an error
		}
		c, err := credentialsOf(s)
		if err != nil {
			continue
		}
		creds = append(creds, c...)
	}
	fitting := fit(creds, imageSpec.Image)
	if len(fitting) == 0 {
		return m.Images.PullImage(ctx, imageSpec, nil, sandbox)
	}
	var errs []error
	for _, auth := range fitting {
		ref, err := m.Images.PullImage(ctx, imageSpec, auth, sandbox)
		if err == nil {
			return ref, nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

// withTag adds the tag "latest" to a name without tag or digest. It refuses an invalid image name.
func withTag(image string) (string, error) {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return "", fmt.Errorf("couldn't parse image name %q: %w", image, err)
	}
	if reference.IsNameOnly(named) && !strings.Contains(image, "@") {
		return image + ":latest", nil
	}
	return image, nil
}
