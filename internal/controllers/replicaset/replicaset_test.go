package replicaset_test

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
	"github.com/knarr-project/knarr/internal/controllers/replicaset"
)

func start(t *testing.T) *controllertest.Cluster {
	c := controllertest.New(t)
	c.RunPods("node", nil)
	c.Run(replicaset.ReplicaSet, replicaset.ReplicationController)
	return c
}

func pods(c *controllertest.Cluster, want int) func() string {
	return func() string {
		n := 0
		for _, p := range controllertest.List[*corev1.Pod](c) {
			if p.DeletionTimestamp == nil {
				n++
			}
		}
		if n != want {
			return fmt.Sprintf("%d pods, want %d", n, want)
		}
		return ""
	}
}

func TestAReplicaSetKeepsItsNumberOfPods(t *testing.T) {
	c := start(t)
	replicas := int32(20)
	controllertest.Create(c, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.ReplicaSetSpec{
		Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, Template: controllertest.Template("web"),
	}})
	status := func(want int32) func() string {
		return func() string {
			rs, _ := client.Get[*appsv1.ReplicaSet](t.Context(), c.Client, "default", "web")
			if s := rs.Status; s.Replicas != want || s.ReadyReplicas != want || s.AvailableReplicas != want || s.FullyLabeledReplicas != want {
				return fmt.Sprintf("%+v", s)
			}
			return ""
		}
	}
	c.Eventually("twenty are ready", status(20))
	if err := pods(c, 20)(); err != "" {
		t.Error(err)
	}
	if _, err := client.Patch[*appsv1.ReplicaSet](t.Context(), c.Client, "default", "web", types.MergePatchType, []byte(`{"spec":{"replicas":3}}`)); err != nil {
		t.Fatal(err)
	}
	c.Eventually("three are left", pods(c, 3))
	c.Eventually("the status counts them", status(3))
	// Choose a pod that is not being deleted: one of the seventeen may still be there.
	var victim *corev1.Pod
	for _, p := range controllertest.List[*corev1.Pod](c) {
		if p.DeletionTimestamp == nil {
			victim = p
		}
	}
	if err := client.Delete[*corev1.Pod](t.Context(), c.Client, "default", victim.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("a deleted one is replaced", pods(c, 3))
}

func TestAReplicationControllerAdoptsMatchingPodsAndReleasesOthers(t *testing.T) {
	c := start(t)
	template := controllertest.Template("web")
	orphan := controllertest.Create(c, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "orphan", Labels: template.Labels}, Spec: template.Spec})
	replicas := int32(1)
	controllertest.Create(c, &corev1.ReplicationController{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ReplicationControllerSpec{
		Replicas: &replicas, Selector: template.Labels, Template: &template,
	}})
	owner := func(want bool) func() string {
		return func() string {
			p, err := client.Get[*corev1.Pod](t.Context(), c.Client, "default", orphan.Name)
			if err != nil || (metav1.GetControllerOf(p) != nil) != want {
				return fmt.Sprintf("%v %v", err, p.OwnerReferences)
			}
			return ""
		}
	}
	c.Eventually("it is adopted", owner(true))
	c.Eventually("no other pod is created", pods(c, 1))
	if _, err := client.Patch[*corev1.Pod](t.Context(), c.Client, "default", orphan.Name, types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"other"}}}`)); err != nil {
		t.Fatal(err)
	}
	c.Eventually("it is released", owner(false))
	c.Eventually("another pod replaces it", pods(c, 2))
}
