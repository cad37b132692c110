package admission

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/knarr-project/knarr/internal/admission/measure"
)

func TestStepsAndPluginsAreTimed(t *testing.T) {
	registry, metrics := prometheus.NewRegistry(), measure.New()
	registry.MustRegister(metrics.Collectors()...)
	samples := func(family string, labels map[string]string) (n uint64) {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				fits := f.GetName() == family && len(m.GetLabel()) == len(labels)
				for _, l := range m.GetLabel() {
					fits = fits && labels[l.GetName()] == l.GetValue()
				}
				if fits {
					n += m.GetHistogram().GetSampleCount()
				}
			}
		}
		return n
	}
	for name, tc := range map[string]struct {
		family string
		labels map[string]string
	}{
		"a refusing step":     {"apiserver_admission_step_admission_duration_seconds", map[string]string{"type": "validate", "operation": "CREATE", "rejected": "true"}},
		"an accepting step":   {"apiserver_admission_step_admission_duration_seconds", map[string]string{"type": "admit", "operation": "CREATE", "rejected": "false"}},
		"the refusing plugin": {"apiserver_admission_controller_admission_duration_seconds", map[string]string{"name": "AlwaysDeny", "type": "validate", "operation": "CREATE", "rejected": "true"}},
		"an accepting plugin": {"apiserver_admission_controller_admission_duration_seconds", map[string]string{"name": "LimitRanger", "type": "admit", "operation": "CREATE", "rejected": "false"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := samples(tc.family, tc.labels)
			config := enable("AlwaysDeny")
			config.Metrics = metrics
			if passes(t, testPod(), config, namespaceWith(nil)) == nil {
				t.Fatal("it was not refused")
			}
			if after := samples(tc.family, tc.labels); after <= before {
				t.Errorf("%d samples, %d before", after, before)
			}
		})
	}
}
