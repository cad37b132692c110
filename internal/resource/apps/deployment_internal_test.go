package apps

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

func TestGenerationCountsChangesOfSpec(t *testing.T) {
	s := DeploymentStrategy()
	d := &appsv1.Deployment{Status: appsv1.DeploymentStatus{Replicas: 7}}
	s.PrepareCreate(d)
	if d.Generation != 1 || d.Status.Replicas != 0 {
		t.Fatalf("created: generation %d, status %+v", d.Generation, d.Status)
	}
	d.Status.Replicas = 2
	for _, c := range []struct {
		name   string
		change func(*appsv1.Deployment)
		want   int64
	}{
		{"nothing", func(*appsv1.Deployment) {}, 1},
		{"status", func(d *appsv1.Deployment) { d.Status.Replicas = 9 }, 1},
		{"labels", func(d *appsv1.Deployment) { d.Labels = map[string]string{"a": "b"} }, 1},
		{"annotations", func(d *appsv1.Deployment) { d.Annotations = map[string]string{"a": "b"} }, 2},
		{"spec", func(d *appsv1.Deployment) { d.Spec.Paused = true }, 2},
		{"generation itself", func(d *appsv1.Deployment) { d.Generation = 99 }, 1},
	} {
		changed := d.DeepCopy()
		c.change(changed)
		s.PrepareUpdate(changed, d)
		if changed.Generation != c.want || changed.Status.Replicas != 2 {
			t.Errorf("%s: generation %d, want %d; status %+v", c.name, changed.Generation, c.want, changed.Status)
		}
	}
	status := d.DeepCopy()
	status.Spec.Paused, status.Status.Replicas = true, 5
	s.PrepareStatus(status, d)
	if status.Spec.Paused || status.Status.Replicas != 5 || status.Generation != 1 {
		t.Errorf("status update: %+v", status)
	}
}
