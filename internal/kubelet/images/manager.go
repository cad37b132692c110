package images

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/flowcontrol"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/knarr-project/knarr/internal/failpoint"
	"github.com/knarr-project/knarr/internal/kubelet/credentials"
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
	// Records and Policy decide whether a pod may use a present image.
	Records *Records
	Policy  Policy
	// Secret reads a pull secret.
	Secret func(ctx context.Context, namespace, name string) (*corev1.Secret, error)
	// Plugins returns the credentials that plugins give for an image without tag and digest. An
	// error says why some gave none. It may be nil.
	Plugins func(ctx context.Context, pod *corev1.Pod, image string) ([]credentials.Credential, error)
	// Parallel limits concurrent pulls; nil means no limit.
	Parallel chan struct{}
	// Limit bounds the rate of pulls; nil means no limit.
	Limit flowcontrol.RateLimiter
	Now   func() time.Time

	backoff backoffs
}

// NewManager makes a Manager. At most parallel pulls run at the same time; 0 means no limit.
func NewManager(images internalapi.ImageManagerService, records *Records, parallel int, secret func(ctx context.Context, namespace, name string) (*corev1.Secret, error)) *Manager {
	m := &Manager{Images: images, Records: records, Secret: secret, Now: time.Now, backoff: backoffs{entries: map[string]*entry{}}}
	if parallel > 0 {
		m.Parallel = make(chan struct{}, parallel)
	}
	return m
}

// Image is an image on this machine.
type Image struct {
	Ref  string // the runtime's reference
	User spec.ImageUser
	// Pulled means that this call has pulled the image, of so many bytes.
	Pulled bool
	Bytes  int64
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
	if present && policy != corev1.PullAlways && m.mayUse(ctx, pod, name, status.Image.Id) {
		event(corev1.EventTypeNormal, "Pulled", "Container image %q already present on machine and can be accessed by the pod", image)
		return found(status.Image), nil
	}
	if policy == corev1.PullNever {
		message := fmt.Sprintf("Container image %q is not present with pull policy of Never", image)
		if present {
			message = fmt.Sprintf("Container image %q is present with pull policy of Never, but the pod does not have credentials that it was pulled with", image)
		}
		event(corev1.EventTypeWarning, ReasonNeverPull, "%s", message)
		return nil, &Error{Reason: ReasonNeverPull, Message: message, RetryAt: m.Now().Add(10 * time.Second)}
	}
	return m.pull(ctx, pod, image, status.GetImage().GetId(), imageSpec, sandbox, event)
}

// mayUse reports whether the pod may use a present image without a pull (KEP-2535). It reads the
// pod's credentials only if the image was pulled with some.
func (m *Manager) mayUse(ctx context.Context, pod *corev1.Pod, image, ref string) bool {
	m.settle(ctx)
	recorded, pulled := m.Records.find(image, ref)
	switch {
	case m.Policy.exempt(image, pulled) || recorded.NodePodsAccessible:
		return true
	case len(recorded.KubernetesSecrets)+len(recorded.KubernetesServiceAccounts) == 0:
		return false
	}
	creds, _ := m.credentials(ctx, pod, image)
	ok, another := covers(recorded, creds)
	if another != nil && len(recorded.KubernetesSecrets) < maxSecrets {
		m.Records.extend(image, ref, *another)
	}
	return ok
}

func (m *Manager) settle(ctx context.Context) {
	m.Records.settle(func(image string) (string, error) {
		status, err := m.Images.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: image}, false)
		return status.GetImage().GetId(), err
	})
}

// Listed removes the records of images that are not in a list of all images. The list was asked for
// at since.
func (m *Manager) Listed(ctx context.Context, list []*runtimeapi.Image, since time.Time) {
	m.settle(ctx)
	refs := make([]string, len(list))
	for i, image := range list {
		refs[i] = image.Id
	}
	m.Records.prune(refs, since)
}

func found(i *runtimeapi.Image) *Image {
	out := &Image{Ref: i.Id, User: spec.ImageUser{Name: i.Username}}
	if i.Uid != nil {
		out.User.UID = &i.Uid.Value
	}
	return out
}

// pull pulls an image. before is the reference of the present image, if any.
func (m *Manager) pull(ctx context.Context, pod *corev1.Pod, image, before string, imageSpec *runtimeapi.ImageSpec, sandbox *runtimeapi.PodSandboxConfig, event Eventf) (*Image, error) {
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
	pulled, err := m.recordedPull(ctx, pod, before, imageSpec, sandbox)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var known *Error
	if errors.As(err, &known) {
		return nil, known
	}
	if err != nil {
		if before != "" {
			err = fmt.Errorf("image %q is present, and a pull with the pod's credentials failed: %w", image, err)
		}
		m.backoff.failed(key, m.Now())
		event(corev1.EventTypeWarning, "Failed", "Failed to pull image %q: %v", image, err)
		return nil, &Error{Reason: ReasonErrImagePull, Message: err.Error(), RetryAt: m.Now()}
	}
	event(corev1.EventTypeNormal, "Pulled", "Successfully pulled image %q in %v (%v including waiting). Image size: %v bytes.", image,
		m.Now().Sub(started).Truncate(time.Millisecond), m.Now().Sub(asked).Truncate(time.Millisecond), pulled.Size)
	result := found(pulled)
	result.Pulled, result.Bytes = true, int64(pulled.Size)
	return result, nil
}

// recordedPull pulls an image between the record of the intent and the record of the result.
func (m *Manager) recordedPull(ctx context.Context, pod *corev1.Pod, before string, imageSpec *runtimeapi.ImageSpec, sandbox *runtimeapi.PodSandboxConfig) (*runtimeapi.Image, error) {
	if err := m.Records.begin(imageSpec.Image, before); err != nil {
		return nil, fmt.Errorf("record the intent to pull: %w", err)
	}
	failpoint.Here("image-pull")
	ref, from, err := m.pullWithCredentials(ctx, pod, imageSpec, sandbox)
	if err != nil {
		m.Records.failed(imageSpec.Image, ctx.Err() != nil || interrupted(err))
		return nil, err
	}
	status, err := m.Images.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: ref, UserSpecifiedImage: imageSpec.UserSpecifiedImage}, false)
	if err != nil || status.GetImage() == nil {
		m.Records.failed(imageSpec.Image, true)
		message := fmt.Sprintf("Failed to inspect image %q after pulling it: %v", imageSpec.UserSpecifiedImage, err)
		return nil, &Error{Reason: ReasonInspectFailed, Message: message, RetryAt: m.Now().Add(2 * time.Second)}
	}
	failpoint.Here("image-pulled")
	m.Records.succeeded(imageSpec.Image, status.Image.Id, from)
	return status.Image, nil
}

// interrupted reports whether the runtime may go on with a pull that failed.
func interrupted(err error) bool {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		return slices.ContainsFunc(many.Unwrap(), interrupted)
	}
	code := grpcstatus.Code(err)
	return code == codes.Canceled || code == codes.DeadlineExceeded || code == codes.Unavailable
}

// credentials returns the pod's credentials for an image: those of its secrets, the most specific
// first, then those of plugins. An error says why plugins gave none.
func (m *Manager) credentials(ctx context.Context, pod *corev1.Pod, image string) ([]credential, error) {
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
	creds = fit(creds, image)
	if m.Plugins == nil {
		return creds, nil
	}
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return creds, err
	}
	given, err := m.Plugins(ctx, pod, named.Name())
	for _, c := range given {
		from := source{}
		if a := c.Account; a != nil {
			from.account = &kubeletconfig.ImagePullServiceAccount{UID: string(a.UID), Namespace: a.Namespace, Name: a.Name}
		}
		creds = append(creds, credential{c.Pattern, &runtimeapi.AuthConfig{Username: c.Username, Password: c.Password}, from})
	}
	return creds, err
}

// pullWithCredentials tries each of the pod's credentials for the image. Without one, it pulls
// without credentials. It returns the source of the credentials that opened the registry.
func (m *Manager) pullWithCredentials(ctx context.Context, pod *corev1.Pod, imageSpec *runtimeapi.ImageSpec, sandbox *runtimeapi.PodSandboxConfig) (ref string, from source, err error) {
	fitting, pluginErr := m.credentials(ctx, pod, imageSpec.Image)
	if len(fitting) == 0 {
		if ref, err = m.Images.PullImage(ctx, imageSpec, nil, sandbox); err != nil {
			err = errors.Join(err, pluginErr)
		}
		return ref, source{}, err
	}
	var errs []error
	for _, c := range fitting {
		ref, err := m.Images.PullImage(ctx, imageSpec, c.auth, sandbox)
		if err == nil {
			return ref, c.source, nil
		}
		errs = append(errs, err)
	}
	return "", source{}, errors.Join(append(errs, pluginErr)...)
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
