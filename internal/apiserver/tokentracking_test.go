package apiserver

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/knarr-project/knarr/internal/client"
)

func TestTokenTrackingDateIsKept(t *testing.T) {
	s := newTestServer(t, func(*Config) {})
	if err := s.boot.create(t.Context(), s.boot.objects()); err != nil {
		t.Fatal(err)
	}
	since := func() (*corev1.ConfigMap, string) {
		t.Helper()
		if err := s.boot.trackTokens(t.Context()); err != nil {
			t.Fatal(err)
		}
		m, err := client.Get[*corev1.ConfigMap](t.Context(), s.ownClient(), "kube-system", trackingMapName)
		if err != nil {
			t.Fatal(err)
		}
		return m, m.Data[trackingSince]
	}
	m, day := since()
	if _, err := time.Parse(time.DateOnly, day); err != nil {
		t.Error(err)
	}
	m.Data[trackingSince] = "2020-02-02"
	m, err := client.Update(t.Context(), s.ownClient(), m)
	if err != nil {
		t.Fatal(err)
	}
	if _, day := since(); day != "2020-02-02" {
		t.Errorf("an earlier date became %s", day)
	}
	m.Data[trackingSince], m.Data["note"] = "yesterday", "x"
	if _, err := client.Update(t.Context(), s.ownClient(), m); err != nil {
		t.Fatal(err)
	}
	if m, got := since(); got != day || m.Data["note"] != "x" {
		t.Errorf("an invalid date became %q beside %q, want %s", got, m.Data, day)
	}
}
