package apps

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

func TestDaemonSetsCountTheirTemplates(t *testing.T) {
	s := DaemonSetStrategy()
	d := &appsv1.DaemonSet{}
	s.PrepareCreate(d)
	changed := d.DeepCopy()
	changed.Annotations = nil
	changed.Spec.Template.Labels = map[string]string{"a": "b"}
	s.PrepareUpdate(changed, d)
	if a, b := d.Annotations[appsv1.DeprecatedTemplateGeneration], changed.Annotations[appsv1.DeprecatedTemplateGeneration]; a != "1" || b != "2" {
		t.Errorf("%q, then %q", a, b)
	}
	for name, annotations := range map[string]map[string]string{"no": nil, "another": {appsv1.DeprecatedTemplateGeneration: "7"}} {
		status := changed.DeepCopy()
		status.Annotations = annotations
		status.Spec.MinReadySeconds, status.Status.NumberReady = 3, 2
		s.PrepareStatus(status, changed)
		if got := status.Annotations[appsv1.DeprecatedTemplateGeneration]; got != "2" || status.Spec.MinReadySeconds != 0 || status.Status.NumberReady != 2 {
			t.Errorf("a status with %s count makes it %q, of %+v", name, got, status)
		}
	}
}
