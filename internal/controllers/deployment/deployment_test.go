package deployment_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
	"github.com/knarr-project/knarr/internal/controllers/deployment"
	"github.com/knarr-project/knarr/internal/controllers/gc"
	"github.com/knarr-project/knarr/internal/controllers/replicaset"
)

func newDeployment(name string, replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: controllertest.Template(name),
	}}
}

func start(t *testing.T, behave func(*corev1.Pod) bool) *controllertest.Cluster {
	c := controllertest.New(t)
	c.RunPods("node", behave)
	c.Run(deployment.Deployment, replicaset.ReplicaSet, gc.Controller)
	return c
}

// settled waits until the deployment's status says that the rollout is complete.
func settled(t *testing.T, c *controllertest.Cluster, name string, replicas int32) *appsv1.Deployment {
	t.Helper()
	var d *appsv1.Deployment
	c.Eventually("deployment completes", func() string {
		var err error
		d, err = client.Get[*appsv1.Deployment](t.Context(), c.Client, "default", name)
		if err != nil {
			return err.Error()
		}
		if d.Status.ObservedGeneration < d.Generation || d.Status.UpdatedReplicas != replicas || d.Status.AvailableReplicas != replicas || d.Status.Replicas != replicas {
			return fmt.Sprintf("status %+v", d.Status)
		}
		return ""
	})
	return d
}

func patch(t *testing.T, c *controllertest.Cluster, name, data string) {
	t.Helper()
	if _, err := client.Patch[*appsv1.Deployment](t.Context(), c.Client, "default", name, types.StrategicMergePatchType, []byte(data)); err != nil {
		t.Fatal(err)
	}
}

func TestARollingUpdateReplacesAllPodsAndKeepsTheOldSet(t *testing.T) {
	c := start(t, nil)
	controllertest.Create(c, newDeployment("web", 4))
	d := settled(t, c, "web", 4)
	if got := d.Annotations["deployment.kubernetes.io/revision"]; got != "1" {
		t.Errorf("revision %q, want 1", got)
	}
	patch(t, c, "web", `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"image:2"}]}}}}`)
	d = settled(t, c, "web", 4)
	if got := d.Annotations["deployment.kubernetes.io/revision"]; got != "2" {
		t.Errorf("revision %q, want 2", got)
	}
	for _, p := range controllertest.List[*corev1.Pod](c) {
		if p.DeletionTimestamp == nil && p.Spec.Containers[0].Image != "image:2" {
			t.Errorf("pod %s is of the old template", p.Name)
		}
	}
	sets := controllertest.List[*appsv1.ReplicaSet](c)
	if len(sets) != 2 {
		t.Fatalf("%d replica sets, want the old one kept", len(sets))
	}
	for _, want := range []appsv1.DeploymentConditionType{appsv1.DeploymentAvailable, appsv1.DeploymentProgressing} {
		i := slices.IndexFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == want })
		if i < 0 || d.Status.Conditions[i].Status != corev1.ConditionTrue {
			t.Errorf("condition %s: %+v", want, d.Status.Conditions)
		}
	}

	// A rollback to the first template reuses its set under a new revision.
	patch(t, c, "web", `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"image:1"}]}}}}`)
	d = settled(t, c, "web", 4)
	if got := d.Annotations["deployment.kubernetes.io/revision"]; got != "3" {
		t.Errorf("revision after rollback %q, want 3", got)
	}
	if n := len(controllertest.List[*appsv1.ReplicaSet](c)); n != 2 {
		t.Errorf("%d replica sets after rollback, want 2", n)
	}
	if !slices.ContainsFunc(c.Events.List(), func(e string) bool {
		return strings.HasPrefix(e, "Normal ScalingReplicaSet Scaled up replica set web-")
	}) {
		t.Errorf("no ScalingReplicaSet event in %q", c.Events.List())
	}
}

func TestDeletingADeploymentTakesItsSetsAndPodsWithIt(t *testing.T) {
	c := start(t, nil)
	controllertest.Create(c, newDeployment("web", 2))
	settled(t, c, "web", 2)
	background := metav1.DeletePropagationBackground
	if err := client.Delete[*appsv1.Deployment](t.Context(), c.Client, "default", "web", metav1.DeleteOptions{PropagationPolicy: &background}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("everything is deleted", func() string {
		sets, pods := controllertest.List[*appsv1.ReplicaSet](c), controllertest.List[*corev1.Pod](c)
		if len(sets)+len(pods) > 0 {
			return fmt.Sprintf("%d sets and %d pods left", len(sets), len(pods))
		}
		return ""
	})
}

func TestOrphanedSetsAreAdoptedByANewDeployment(t *testing.T) {
	c := start(t, nil)
	controllertest.Create(c, newDeployment("web", 2))
	settled(t, c, "web", 2)
	before := controllertest.List[*appsv1.ReplicaSet](c)[0].UID
	orphan := metav1.DeletePropagationOrphan
	if err := client.Delete[*appsv1.Deployment](t.Context(), c.Client, "default", "web", metav1.DeleteOptions{PropagationPolicy: &orphan}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("the set is orphaned", func() string {
		if n := len(controllertest.List[*appsv1.Deployment](c)); n > 0 {
			return "the deployment is there"
		}
		sets := controllertest.List[*appsv1.ReplicaSet](c)
		if len(sets) != 1 || len(sets[0].OwnerReferences) != 0 {
			return fmt.Sprintf("%d sets", len(sets))
		}
		return ""
	})
	controllertest.Create(c, newDeployment("web", 2))
	settled(t, c, "web", 2)
	if sets := controllertest.List[*appsv1.ReplicaSet](c); len(sets) != 1 || sets[0].UID != before || metav1.GetControllerOf(sets[0]) == nil {
		t.Errorf("the orphan was not adopted: %d sets", len(sets))
	}
}

func TestRecreateNeverRunsTwoTemplatesAtOnce(t *testing.T) {
	c := start(t, nil)
	d := newDeployment("web", 3)
	d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	controllertest.Create(c, d)
	settled(t, c, "web", 3)
	pods, err := client.Open[*corev1.Pod](t.Context(), c.Client, client.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	mixed := make(chan string, 100)
	pods.Subscribe(t.Context(), func(client.TypedEvent[*corev1.Pod]) {
		images := map[string]bool{}
		for _, p := range pods.List("", nil) {
			if !controller.PodEnded(p) {
				images[p.Spec.Containers[0].Image] = true
			}
		}
		if len(images) > 1 {
			select {
			case mixed <- fmt.Sprint(images):
			default:
			}
		}
	})
	patch(t, c, "web", `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"image:2"}]}}}}`)
	settled(t, c, "web", 3)
	select {
	case m := <-mixed:
		t.Errorf("pods of two templates ran at once: %s", m)
	default:
	}
}

func TestScalingInTheMidstOfARolloutIsProportional(t *testing.T) {
	// Pods of the second template never become ready, so the rollout stops halfway.
	c := start(t, func(p *corev1.Pod) bool { return p.Spec.Containers[0].Image == "image:1" })
	d := newDeployment("web", 10)
	surge, unavailable := intstr.FromInt32(3), intstr.FromInt32(2)
	d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: &surge, MaxUnavailable: &unavailable}}
	controllertest.Create(c, d)
	settled(t, c, "web", 10)
	sizes := func(old, updated int32) func() string {
		return func() string {
			got := map[string]int32{}
			for _, rs := range controllertest.List[*appsv1.ReplicaSet](c) {
				got[rs.Spec.Template.Spec.Containers[0].Image] = *rs.Spec.Replicas
			}
			if got["image:1"] != old || got["image:2"] != updated {
				return fmt.Sprint(got)
			}
			return ""
		}
	}
	patch(t, c, "web", `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"image:2"}]}}}}`)
	c.Eventually("the rollout stops at 8 and 5", sizes(8, 5))
	patch(t, c, "web", `{"spec":{"replicas":30}}`)
	c.Eventually("scaled to 30 with 3 surging", sizes(20, 13))
}

func TestAPausedDeploymentKeepsItsTemplate(t *testing.T) {
	c := start(t, nil)
	controllertest.Create(c, newDeployment("web", 1))
	settled(t, c, "web", 1)
	patch(t, c, "web", `{"spec":{"paused":true,"replicas":2,"template":{"spec":{"containers":[{"name":"c","image":"image:2"}]}}}}`)
	c.Eventually("it scales while paused", func() string {
		d, _ := client.Get[*appsv1.Deployment](t.Context(), c.Client, "default", "web")
		i := slices.IndexFunc(d.Status.Conditions, func(c appsv1.DeploymentCondition) bool { return c.Type == appsv1.DeploymentProgressing })
		if d.Status.Replicas != 2 || i < 0 || d.Status.Conditions[i].Reason != "DeploymentPaused" {
			return fmt.Sprintf("%+v", d.Status)
		}
		return ""
	})
	if sets := controllertest.List[*appsv1.ReplicaSet](c); len(sets) != 1 {
		t.Errorf("%d replica sets: it rolled out while paused", len(sets))
	}
	patch(t, c, "web", `{"spec":{"paused":false}}`)
	settled(t, c, "web", 2)
}
