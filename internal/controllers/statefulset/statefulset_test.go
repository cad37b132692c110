package statefulset_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
	"github.com/knarr-project/knarr/internal/controllers/gc"
	"github.com/knarr-project/knarr/internal/controllers/statefulset"
)

func newSet(name string, replicas int32) *appsv1.StatefulSet {
	return &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.StatefulSetSpec{
		Replicas: &replicas, ServiceName: "svc", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: controllertest.Template(name),
	}}
}

func start(t *testing.T, behave func(*corev1.Pod) bool) *controllertest.Cluster {
	c := controllertest.New(t)
	c.RunPods("node", behave)
	c.Run(statefulset.StatefulSet, gc.Controller)
	return c
}

// running checks that exactly these pods run ("name image"), and that the status counts them.
func running(t *testing.T, c *controllertest.Cluster, set string, want ...string) func() string {
	return func() string {
		got := []string{}
		for _, p := range controllertest.List[*corev1.Pod](c) {
			if p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil {
				return p.Name + " is " + string(p.Status.Phase)
			}
			got = append(got, p.Name+" "+p.Spec.Containers[0].Image)
		}
		if !slices.Equal(got, want) {
			return fmt.Sprintf("%v, want %v", got, want)
		}
		s, err := client.Get[*appsv1.StatefulSet](t.Context(), c.Client, "default", set)
		if err != nil {
			return err.Error()
		}
		if s.Status.ReadyReplicas != int32(len(want)) || s.Status.Replicas != int32(len(want)) || s.Status.ObservedGeneration != s.Generation {
			return fmt.Sprintf("%+v", s.Status)
		}
		return ""
	}
}

func patch(t *testing.T, c *controllertest.Cluster, name, data string) {
	t.Helper()
	if _, err := client.Patch[*appsv1.StatefulSet](t.Context(), c.Client, "default", name, types.StrategicMergePatchType, []byte(data)); err != nil {
		t.Fatal(err)
	}
}

func TestPodsStartAndStopInOrder(t *testing.T) {
	c := start(t, nil)
	controllertest.Create(c, newSet("db", 3))
	c.Eventually("three run", running(t, c, "db", "db-0 image:1", "db-1 image:1", "db-2 image:1"))
	p, _ := client.Get[*corev1.Pod](t.Context(), c.Client, "default", "db-1")
	if p.Spec.Hostname != "db-1" || p.Spec.Subdomain != "svc" || p.Labels[appsv1.StatefulSetPodNameLabel] != "db-1" || p.Labels[appsv1.PodIndexLabel] != "1" {
		t.Errorf("db-1 has no identity: %+v", p)
	}
	patch(t, c, "db", `{"spec":{"replicas":1}}`)
	c.Eventually("one runs", running(t, c, "db", "db-0 image:1"))
	var order []string
	for _, e := range c.Events.List() {
		if name, ok := strings.CutPrefix(e, "Normal SuccessfulCreate Create Pod "); ok {
			order = append(order, "+"+strings.Fields(name)[0])
		}
		if name, ok := strings.CutPrefix(e, "Normal SuccessfulDelete Delete Pod "); ok {
			order = append(order, "-"+strings.Fields(name)[0])
		}
	}
	if want := []string{"+db-0", "+db-1", "+db-2", "-db-2", "-db-1"}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
}

func TestScalingHaltsAtAnUnreadyPod(t *testing.T) {
	c := start(t, func(p *corev1.Pod) bool {
		if p.Name == "db-1" {
			p.Status.Conditions[0].Status = corev1.ConditionFalse
		}
		return true
	})
	controllertest.Create(c, newSet("db", 3))
	c.Eventually("it stops at db-1", func() string {
		if pods := controllertest.List[*corev1.Pod](c); len(pods) != 2 || pods[1].Status.Phase != corev1.PodRunning {
			return fmt.Sprintf("%d pods", len(pods))
		}
		return ""
	})
}

func TestAPartitionedUpdateAndItsEnd(t *testing.T) {
	c := start(t, nil)
	set := newSet("db", 3)
	set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 5}
	controllertest.Create(c, set)
	c.Eventually("three run", running(t, c, "db", "db-5 image:1", "db-6 image:1", "db-7 image:1"))
	patch(t, c, "db", `{"spec":{"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":2}},"template":{"spec":{"containers":[{"name":"c","image":"image:2"}]}}}}`)
	c.Eventually("the last one is updated", running(t, c, "db", "db-5 image:1", "db-6 image:1", "db-7 image:2"))
	if err := client.Delete[*corev1.Pod](t.Context(), c.Client, "default", "db-6", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("below the partition it is recreated in the old revision", running(t, c, "db", "db-5 image:1", "db-6 image:1", "db-7 image:2"))
	patch(t, c, "db", `{"spec":{"updateStrategy":{"type":"RollingUpdate","rollingUpdate":{"partition":0}}}}`)
	c.Eventually("all are updated", running(t, c, "db", "db-5 image:2", "db-6 image:2", "db-7 image:2"))
	c.Eventually("the rollout ends", func() string {
		s, _ := client.Get[*appsv1.StatefulSet](t.Context(), c.Client, "default", "db")
		if s.Status.CurrentRevision != s.Status.UpdateRevision || s.Status.CurrentReplicas != 3 || s.Status.UpdatedReplicas != 3 {
			return fmt.Sprintf("%+v", s.Status)
		}
		return ""
	})
}

func TestClaimsFollowTheRetentionPolicy(t *testing.T) {
	c := start(t, nil)
	set := newSet("db", 2)
	set.Spec.PodManagementPolicy = appsv1.ParallelPodManagement
	set.Spec.PersistentVolumeClaimRetentionPolicy = &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenDeleted: appsv1.RetainPersistentVolumeClaimRetentionPolicyType}
	set.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}}
	controllertest.Create(c, set)
	claims := func(want ...string) func() string {
		return func() string {
			var got []string
			for _, pvc := range controllertest.List[*corev1.PersistentVolumeClaim](c) {
				got = append(got, pvc.Name)
			}
			if !slices.Equal(got, want) {
				return fmt.Sprint(got)
			}
			return ""
		}
	}
	c.Eventually("two run", running(t, c, "db", "db-0 image:1", "db-1 image:1"))
	c.Eventually("two claims", claims("data-db-0", "data-db-1"))
	p, _ := client.Get[*corev1.Pod](t.Context(), c.Client, "default", "db-0")
	if len(p.Spec.Volumes) == 0 || p.Spec.Volumes[0].PersistentVolumeClaim == nil || p.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "data-db-0" {
		t.Errorf("db-0 does not mount its claim: %+v", p.Spec.Volumes)
	}
	patch(t, c, "db", `{"spec":{"replicas":1}}`)
	c.Eventually("one runs", running(t, c, "db", "db-0 image:1"))
	c.Eventually("the claim is deleted with its pod", claims("data-db-0"))
}
