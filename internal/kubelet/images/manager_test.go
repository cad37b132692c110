package images

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

const private = "registry.example.com/team/app:v1"

// registry is a runtime whose pulls of the private image need a password.
type registry struct {
	internalapi.ImageManagerService
	password string
	present  map[string]bool
	pulls    int
	during   func() // called within a pull
}

func (r *registry) ImageStatus(_ context.Context, i *runtimeapi.ImageSpec, _ bool) (*runtimeapi.ImageStatusResponse, error) {
	name := strings.TrimPrefix(i.Image, "id:")
	if !r.present[name] {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	return &runtimeapi.ImageStatusResponse{Image: &runtimeapi.Image{Id: "id:" + name}}, nil
}

func (r *registry) PullImage(ctx context.Context, i *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig) (string, error) {
	r.pulls++
	if r.during != nil {
		r.during()
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if i.Image == private && auth.GetPassword() != r.password {
		return "", errors.New("unauthorized")
	}
	r.present[i.Image] = true
	return "id:" + i.Image, nil
}

// machine is a node with a registry. Secrets are by namespace: UID and password.
type machine struct {
	*registry
	t       *testing.T
	dir     string
	now     time.Time
	secrets map[string][2]string
	manager *Manager
}

func newMachine(t *testing.T) *machine {
	m := &machine{
		registry: &registry{password: "open", present: map[string]bool{}}, t: t, dir: t.TempDir(),
		now: time.Unix(1000, 0), secrets: map[string][2]string{"red": {"1", "open"}},
	}
	m.restart()
	return m
}

// restart forgets everything that is not on disk, as after kill -9.
func (m *machine) restart() {
	m.t.Helper()
	now := func() time.Time { return m.now }
	records, err := OpenRecords(m.dir, now, slog.New(slog.DiscardHandler))
	if err != nil {
		m.t.Fatal(err)
	}
	m.manager = NewManager(m.registry, records, 0, func(_ context.Context, namespace, name string) (*corev1.Secret, error) {
		s, ok := m.secrets[namespace]
		if !ok {
			return nil, errors.New("not found")
		}
		config := fmt.Sprintf(`{"auths":{"registry.example.com":{"username":"u","password":%q}}}`, s[1])
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(s[0])},
			Type:       corev1.SecretTypeDockerConfigJson, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(config)},
		}, nil
	})
	m.manager.Now = now
}

// use starts a pod of the namespace, and returns the reason why it cannot use the image.
func (m *machine) use(ctx context.Context, namespace, image string, policy corev1.PullPolicy) string {
	m.now = m.now.Add(time.Hour) // beyond each back-off
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, UID: types.UID(namespace)}}
	pod.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
	_, err := m.manager.Ensure(ctx, pod, image, policy, nil, func(string, string, string, ...any) {})
	var known *Error
	if errors.As(err, &known) {
		return known.Reason
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

func (m *machine) expect(namespace string, policy corev1.PullPolicy, reason string, pulls int) {
	m.t.Helper()
	before := m.pulls
	if got := m.use(m.t.Context(), namespace, private, policy); got != reason || m.pulls-before != pulls {
		m.t.Errorf("a pod of %s with %s: %q after %d pulls, want %q after %d", namespace, policy, got, m.pulls-before, reason, pulls)
	}
}

func (m *machine) files(folder string) int {
	m.t.Helper()
	entries, err := os.ReadDir(filepath.Join(m.dir, folder))
	if err != nil {
		m.t.Fatal(err)
	}
	return len(entries)
}

func TestAPodOfAnotherNamespaceNeedsCredentialsForAPulledImage(t *testing.T) {
	m := newMachine(t)
	m.expect("red", corev1.PullIfNotPresent, "", 1)
	for range 2 {
		m.expect("red", corev1.PullIfNotPresent, "", 0)
		m.expect("red", corev1.PullNever, "", 0)
		m.expect("blue", corev1.PullIfNotPresent, ReasonErrImagePull, 1)
		m.expect("blue", corev1.PullNever, ReasonNeverPull, 0)
		m.restart()
	}
	if m.files("pulling") != 0 || m.files("pulled") != 1 {
		t.Errorf("%d intents and %d records", m.files("pulling"), m.files("pulled"))
	}
	m.secrets["blue"] = [2]string{"2", "wrong"}
	m.expect("blue", corev1.PullIfNotPresent, ReasonErrImagePull, 1)
	m.secrets["blue"] = [2]string{"2", "open"}
	m.expect("blue", corev1.PullIfNotPresent, "", 0) // the same content as in red
}

func TestAChangedSecretCoversItsOwnPodsOnly(t *testing.T) {
	m := newMachine(t)
	m.expect("red", corev1.PullIfNotPresent, "", 1)
	m.secrets["red"], m.secrets["blue"] = [2]string{"1", "new"}, [2]string{"2", "new"}
	m.expect("red", corev1.PullIfNotPresent, "", 0)
	m.expect("blue", corev1.PullIfNotPresent, ReasonErrImagePull, 1)
	m.secrets["red"] = [2]string{"3", "new"} // deleted and made anew
	m.expect("red", corev1.PullNever, ReasonNeverPull, 0)
	m.password = "new"
	m.expect("blue", corev1.PullIfNotPresent, "", 1)
	m.expect("red", corev1.PullNever, "", 0)
}

func TestAnImageWhosePullWasKilledCountsAsPulled(t *testing.T) {
	m := newMachine(t)
	if err := m.manager.Records.begin(private, ""); err != nil {
		t.Fatal(err)
	}
	m.present[private] = true // the runtime finished the pull
	m.restart()
	m.expect("blue", corev1.PullNever, ReasonNeverPull, 0)
	if m.files("pulling") != 0 || m.files("pulled") != 1 {
		t.Errorf("%d intents and %d records", m.files("pulling"), m.files("pulled"))
	}
	m.restart()
	m.expect("red", corev1.PullIfNotPresent, "", 1)
	m.expect("red", corev1.PullNever, "", 0)
}

func TestAnInterruptedPullThatChangedNothingLeavesALoadedImageOpen(t *testing.T) {
	m := newMachine(t)
	m.present[private] = true
	ctx, cancel := context.WithCancel(t.Context())
	m.during = func() {
		m.expectFree()
		cancel()
	}
	m.use(ctx, "red", private, corev1.PullAlways)
	m.during = nil
	m.expect("blue", corev1.PullNever, "", 0)
	if m.files("pulling") != 0 || m.files("pulled") != 0 {
		t.Errorf("%d intents and %d records", m.files("pulling"), m.files("pulled"))
	}
}

// expectFree checks that a loaded image is open to each pod.
func (m *machine) expectFree() {
	m.t.Helper()
	if got := m.use(m.t.Context(), "blue", private, corev1.PullNever); got != "" {
		m.t.Errorf("a loaded image is not usable: %s", got)
	}
}

func TestAnImagePulledWithoutCredentialsIsOpen(t *testing.T) {
	m := newMachine(t)
	const public = "docker.io/library/busybox:1"
	for _, namespace := range []string{"blue", "red"} {
		if got := m.use(t.Context(), namespace, public, corev1.PullIfNotPresent); got != "" {
			t.Fatal(got)
		}
		m.restart()
	}
	if m.pulls != 1 {
		t.Errorf("%d pulls", m.pulls)
	}
	m.manager.Policy.Verify = kubeletconfig.AlwaysVerify
	if got := m.use(t.Context(), "blue", public, corev1.PullNever); got != "" {
		t.Errorf("AlwaysVerify: %s", got)
	}
}

func TestARecordGoesWithItsImage(t *testing.T) {
	m := newMachine(t)
	m.expect("red", corev1.PullIfNotPresent, "", 1)
	list := []*runtimeapi.Image{{Id: "id:" + private}}
	m.manager.Listed(t.Context(), list, m.now.Add(time.Hour))
	m.manager.Listed(t.Context(), nil, m.now.Add(-time.Hour)) // a list from before the pull
	if m.files("pulled") != 1 {
		t.Fatal("the record of a present image is gone")
	}
	m.manager.Listed(t.Context(), nil, m.now.Add(time.Hour))
	if m.files("pulled") != 0 {
		t.Error("the record of a removed image is still there")
	}
	m.expectFree() // the image was loaded anew
}

func TestAnUnreadableRecordIsCheckedAgain(t *testing.T) {
	for name, content := range map[string]string{
		"empty": "", "of another kind": `{"apiVersion":"v1","kind":"Pod"}`, "of another image": `{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"ImagePulledRecord","imageRef":"x"}`,
		"too large": strings.Repeat(" ", maxRecordBytes+1),
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.present[private] = true
			path := filepath.Join(m.dir, "pulled", fileName("id:"+private))
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			m.restart()
			m.expect("blue", corev1.PullNever, ReasonNeverPull, 0)
			m.expect("red", corev1.PullIfNotPresent, "", 1)
			m.restart()
			m.expect("red", corev1.PullNever, "", 0)
		})
	}
}

func TestNothingIsPulledWithoutARecordOfTheIntent(t *testing.T) {
	m := newMachine(t)
	if err := os.RemoveAll(filepath.Join(m.dir, "pulling")); err != nil {
		t.Fatal(err)
	}
	m.expect("red", corev1.PullIfNotPresent, ReasonErrImagePull, 0)
}

func TestTheIntentStaysUntilTheRecordIsOnDisk(t *testing.T) {
	m := newMachine(t)
	pulled := filepath.Join(m.dir, "pulled")
	if err := os.RemoveAll(pulled); err != nil {
		t.Fatal(err)
	}
	m.expect("red", corev1.PullIfNotPresent, "", 1)
	m.expect("red", corev1.PullNever, "", 0)
	if m.files("pulling") != 1 {
		t.Fatal("there is neither a record nor an intent")
	}
	if err := os.Mkdir(pulled, 0o700); err != nil {
		t.Fatal(err)
	}
	m.expect("red", corev1.PullNever, "", 0)
	m.restart()
	m.expect("red", corev1.PullNever, "", 0)
	if m.files("pulling") != 0 || m.files("pulled") != 1 {
		t.Errorf("%d intents and %d records", m.files("pulling"), m.files("pulled"))
	}
}

func BenchmarkAPresentImage(b *testing.B) {
	records, err := OpenRecords(b.TempDir(), time.Now, slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	for i := range 100 {
		name := fmt.Sprintf("docker.io/library/app:%d", i)
		if err := records.begin(name, ""); err != nil {
			b.Fatal(err)
		}
		records.succeeded(name, "id:"+name, source{})
	}
	m := NewManager(nil, records, 0, nil)
	for b.Loop() {
		if !m.mayUse(b.Context(), &corev1.Pod{}, "docker.io/library/app:7", "id:docker.io/library/app:7") {
			b.Fatal("the image is not usable")
		}
	}
}
