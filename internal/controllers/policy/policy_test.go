package policy_test

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
	"github.com/knarr-project/knarr/internal/controllers/policy"
	"github.com/knarr-project/knarr/internal/controllers/replicaset"
)

func TestAQuotaCountsExistingObjects(t *testing.T) {
	c := controllertest.New(t)
	c.Run(policy.ResourceQuota)
	template := controllertest.Template("p")
	template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")}
	controllertest.Create(c, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: template.Spec})
	controllertest.Create(c, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}})
	controllertest.Create(c, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
		"pods": resource.MustParse("5"), "requests.cpu": resource.MustParse("1"), "configmaps": resource.MustParse("9"), "count/replicasets.apps": resource.MustParse("2"), "services": resource.MustParse("3"),
	}}})
	used := func(want string) func() string {
		return func() string {
			q, err := client.Get[*corev1.ResourceQuota](t.Context(), c.Client, "default", "q")
			if err != nil {
				return err.Error()
			}
			get := func(n corev1.ResourceName) string { v, ok := q.Status.Used[n]; return fmt.Sprint(v.String(), ok) }
			got := fmt.Sprint(get("pods"), " ", get("requests.cpu"), " ", get("configmaps"), " ", get("count/replicasets.apps"), " ", get("services"), " ", len(q.Status.Hard))
			if got != want {
				return got
			}
			return ""
		}
	}
	c.Eventually("counted", used("1true 250mtrue 1true 0true 0true 5"))
	none := int64(0)
	if err := client.Delete[*corev1.Pod](t.Context(), c.Client, "default", "p", metav1.DeleteOptions{GracePeriodSeconds: &none}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("released", used("0true 0true 1true 0true 0true 5"))
}

func TestABudgetCountsAllowedEvictions(t *testing.T) {
	c := controllertest.New(t)
	c.RunPods("node", nil)
	c.Run(policy.Disruption, replicaset.ReplicaSet)
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	replicas := int32(4)
	controllertest.Create(c, &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: selector, Template: controllertest.Template("web")}})
	for name, spec := range map[string]policyv1.PodDisruptionBudgetSpec{
		"min":     {MinAvailable: &intstr.IntOrString{IntVal: 3}, Selector: selector},
		"percent": {MinAvailable: &intstr.IntOrString{Type: intstr.String, StrVal: "50%"}, Selector: selector},
		"max":     {MaxUnavailable: &intstr.IntOrString{IntVal: 4}, Selector: selector},
		"all":     {MinAvailable: &intstr.IntOrString{Type: intstr.String, StrVal: "100%"}, Selector: selector},
	} {
		controllertest.Create(c, &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
	}
	for name, want := range map[string]int32{"min": 1, "percent": 2, "max": 4, "all": 0} {
		c.Eventually(name, func() string {
			b, err := client.Get[*policyv1.PodDisruptionBudget](t.Context(), c.Client, "default", name)
			if err != nil {
				return err.Error()
			}
			if b.Status.DisruptionsAllowed != want || b.Status.ExpectedPods != 4 || b.Status.CurrentHealthy != 4 || len(b.Status.Conditions) != 1 {
				return fmt.Sprintf("%+v", b.Status)
			}
			return ""
		})
	}
}
