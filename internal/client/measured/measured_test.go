package measured_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/client/clienttest"
	"github.com/knarr-project/knarr/internal/client/measured"
)

func TestCallsAreCountedByMethodAndAnswer(t *testing.T) {
	m := measured.New()
	c := m.Client(clienttest.NewMemory(), "host:1")
	object := func() *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
	}
	made, err := client.Create(t.Context(), c, object())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Create(t.Context(), c, object()); err == nil {
		t.Fatal("an object was created twice")
	}
	if _, err := client.Update(t.Context(), c, made); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Open[*corev1.ConfigMap](t.Context(), c, client.Scope{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Get[*corev1.ConfigMap](t.Context(), c, "ns", "other"); err == nil {
		t.Fatal("an object that does not exist was read")
	}
	if err := client.Delete[*corev1.ConfigMap](t.Context(), c, "ns", "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts, timed := map[string]float64{}, uint64(0)
	for _, f := range families {
		for _, one := range f.Metric {
			if one.Histogram != nil {
				timed += one.Histogram.GetSampleCount()
				continue
			}
			key := ""
			for _, l := range one.Label { // in the order of their names
				key += l.GetValue() + " "
			}
			counts[key] = one.Counter.GetValue()
		}
	}
	for _, key := range []string{"201 host:1 POST ", "409 host:1 POST ", "200 host:1 PUT ", "200 host:1 GET ", "404 host:1 GET ", "200 host:1 DELETE "} {
		if counts[key] != 1 {
			t.Errorf("%q is counted %v times in %v", key, counts[key], counts)
		}
	}
	if timed != 6 {
		t.Errorf("%d calls are timed", timed)
	}
}
