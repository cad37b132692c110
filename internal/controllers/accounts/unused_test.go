package accounts_test

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
	"github.com/knarr-project/knarr/internal/controllers/accounts"
)

const (
	lastUsed     = "kubernetes.io/legacy-token-last-used"
	invalidSince = "kubernetes.io/legacy-token-invalid-since"
)

// The expected results were measured with upstream's controller manager v1.36.3.
func TestUnusedGeneratedTokensAreInvalidatedThenDeleted(t *testing.T) {
	c := controllertest.New(t)
	c.Config.LegacyTokenPeriod = time.Nanosecond // every past day is longer ago than this period
	if _, err := client.Create(t.Context(), c.Client, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}); err != nil {
		t.Fatal(err)
	}
	tomorrow := time.Now().UTC().Add(24 * time.Hour).Format(time.DateOnly)
	const gone, marked, kept = "gone", "marked", "kept"
	cases := map[string]struct {
		labels  map[string]string
		byHand  bool
		pod     func(*corev1.PodSpec, string)
		outcome string
	}{
		"long-unused":              {map[string]string{lastUsed: "2020-01-01"}, false, nil, marked},
		"never-used":               {nil, false, nil, marked},
		"used-of-late":             {map[string]string{lastUsed: tomorrow}, false, nil, kept},
		"made-by-hand":             {map[string]string{lastUsed: "2020-01-01"}, true, nil, kept},
		"long-invalid":             {map[string]string{invalidSince: "2020-01-01"}, false, nil, gone},
		"long-invalid-though-used": {map[string]string{invalidSince: "2020-01-01", lastUsed: "2020-02-02"}, false, nil, gone},
		"invalid-of-late":          {map[string]string{invalidSince: tomorrow}, false, nil, kept},
		"invalid-since-unreadable": {map[string]string{invalidSince: "junk"}, false, nil, marked},
		"last-used-unreadable":     {map[string]string{lastUsed: "junk"}, false, nil, kept},
		"mounted": {map[string]string{lastUsed: "2020-01-01"}, false, func(s *corev1.PodSpec, name string) {
			s.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}}}
		}, kept},
		"in-the-environment": {map[string]string{lastUsed: "2020-01-01"}, false, func(s *corev1.PodSpec, name string) {
			s.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}}}}
		}, kept},
		"mounted-and-invalid": {map[string]string{invalidSince: "2020-01-01"}, false, func(s *corev1.PodSpec, name string) {
			s.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: name}}}}
		}, kept},
	}
	for name, tc := range cases {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if !tc.byHand {
			account.Secrets = []corev1.ObjectReference{{Name: name}}
		}
		account = controllertest.Create(c, account)
		if tc.pod != nil {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
			tc.pod(&pod.Spec, name)
			controllertest.Create(c, pod)
		}
		controllertest.Create(c, &corev1.Secret{Type: corev1.SecretTypeServiceAccountToken, ObjectMeta: metav1.ObjectMeta{Name: name, Labels: tc.labels,
			Annotations: map[string]string{corev1.ServiceAccountNameKey: name, corev1.ServiceAccountUIDKey: string(account.UID)}}})
	}
	check := func() string {
		have := map[string]*corev1.Secret{}
		for _, s := range controllertest.List[*corev1.Secret](c) {
			have[s.Name] = s
		}
		for name, tc := range cases {
			s, there := have[name]
			switch {
			case tc.outcome == gone:
				if there {
					return name + " is still there"
				}
			case !there:
				return name + " is gone"
			case tc.outcome == kept && !maps.Equal(s.Labels, tc.labels):
				return name + " was changed"
			case tc.outcome == marked && (!isDay(s.Labels[invalidSince]) || s.Labels[lastUsed] != tc.labels[lastUsed]):
				return name + " is not marked"
			}
		}
		return ""
	}
	track(t.Context(), t, c)
	c.Run(accounts.UnusedTokens)
	c.Eventually("each Secret has its final state", check)
}

func TestARevalidatedTokenIsNotInvalidatedAtOnce(t *testing.T) {
	c := controllertest.New(t)
	c.Config.LegacyTokenPeriod = time.Nanosecond
	if _, err := client.Create(t.Context(), c.Client, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}); err != nil {
		t.Fatal(err)
	}
	track(t.Context(), t, c)
	generated := func(name string) *corev1.Secret {
		account := controllertest.Create(c, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}, Secrets: []corev1.ObjectReference{{Name: name}}})
		return controllertest.Create(c, &corev1.Secret{Type: corev1.SecretTypeServiceAccountToken, ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{lastUsed: "2020-01-01"},
			Annotations: map[string]string{corev1.ServiceAccountNameKey: name, corev1.ServiceAccountUIDKey: string(account.UID)}}})
	}
	marked := func(name string) {
		c.Eventually(name+" is marked", func() string {
			s, err := client.Get[*corev1.Secret](t.Context(), c.Client, "default", name)
			if err != nil || !isDay(s.Labels[invalidSince]) {
				return fmt.Sprint(err, s.Labels)
			}
			return ""
		})
	}
	s := generated("first")
	c.Run(accounts.UnusedTokens)
	marked("first")
	generated("between") // once "between" is marked, no event of "first" is pending
	marked("between")
	controllertest.Retry(c, s, func(s *corev1.Secret) { delete(s.Labels, invalidSince) })
	generated("second") // created after that change, so handled after it
	marked("second")
	if s, err := client.Get[*corev1.Secret](t.Context(), c.Client, "default", "first"); err != nil || s.Labels[invalidSince] != "" {
		t.Errorf("it is invalid again: %v %v", s.Labels, err)
	}
}

func isDay(text string) bool {
	_, err := time.Parse(time.DateOnly, text)
	return err == nil
}

func track(ctx context.Context, t *testing.T, c *controllertest.Cluster) {
	t.Helper()
	if _, err := client.Create(ctx, c.Client, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-apiserver-legacy-service-account-token-tracking"},
		Data: map[string]string{"since": "2020-01-01"}}); err != nil {
		t.Fatal(err)
	}
}
