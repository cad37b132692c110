package daemonset_test

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
	"github.com/knarr-project/knarr/internal/controllers/daemonset"
)

func newDaemonSet(name string) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}, Template: controllertest.Template(name),
	}}
}

func start(t *testing.T) *controllertest.Cluster {
	c := controllertest.New(t)
	c.RunPods("", nil)
	for _, n := range []string{"one", "two", "three"} {
		controllertest.Node(c, n, nil)
	}
	c.Run(daemonset.DaemonSet)
	return c
}

// on checks that each of the nodes has exactly one pod of the image, and every other node none.
func on(c *controllertest.Cluster, image string, nodes ...string) func() string {
	return func() string {
		got := map[string]int{}
		for _, p := range controllertest.List[*corev1.Pod](c) {
			if p.DeletionTimestamp != nil || p.Spec.Containers[0].Image != image || p.Status.Phase != corev1.PodRunning {
				return fmt.Sprintf("pod %s on %s: %s %s", p.Name, p.Spec.NodeName, p.Spec.Containers[0].Image, p.Status.Phase)
			}
			got[p.Spec.NodeName]++
		}
		want := map[string]int{}
		for _, n := range nodes {
			want[n] = 1
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Sprintf("pods on %v, want %v", got, want)
		}
		return ""
	}
}

func TestEveryFittingNodeHasOnePod(t *testing.T) {
	c := start(t)
	controllertest.Create(c, newDaemonSet("agent"))
	c.Eventually("a pod on each node", on(c, "image:1", "one", "two", "three"))

	n, _ := client.Get[*corev1.Node](t.Context(), c.Client, "", "two")
	n = n.DeepCopy()
	n.Spec.Taints = []corev1.Taint{{Key: "away", Effect: corev1.TaintEffectNoExecute}}
	if _, err := client.Update(t.Context(), c.Client, n); err != nil {
		t.Fatal(err)
	}
	c.Eventually("the tainted node loses its pod", on(c, "image:1", "one", "three"))
	controllertest.Node(c, "four", nil)
	c.Eventually("a new node gets one", on(c, "image:1", "four", "one", "three"))
	c.Eventually("the status counts", func() string {
		ds, _ := client.Get[*appsv1.DaemonSet](t.Context(), c.Client, "default", "agent")
		s := ds.Status
		if s.DesiredNumberScheduled != 3 || s.CurrentNumberScheduled != 3 || s.NumberReady != 3 || s.NumberAvailable != 3 || s.UpdatedNumberScheduled != 3 {
			return fmt.Sprintf("%+v", s)
		}
		return ""
	})
}

func TestAFailedPodIsReplaced(t *testing.T) {
	c := start(t)
	controllertest.Create(c, newDaemonSet("agent"))
	c.Eventually("a pod on each node", on(c, "image:1", "one", "two", "three"))
	p := controllertest.List[*corev1.Pod](c)[0]
	controllertest.Retry(c, p, func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }, "status")
	c.Eventually("it is replaced", func() string {
		for _, have := range controllertest.List[*corev1.Pod](c) {
			if have.UID == p.UID {
				return "still there"
			}
		}
		return on(c, "image:1", "one", "two", "three")()
	})
}

func TestARollingUpdateReplacesPodsAndARollbackFindsTheOldRevision(t *testing.T) {
	for name, strategy := range map[string]string{
		"by maxUnavailable": `{"type":"RollingUpdate","rollingUpdate":{"maxUnavailable":1}}`,
		"by maxSurge":       `{"type":"RollingUpdate","rollingUpdate":{"maxSurge":1,"maxUnavailable":0}}`,
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t)
			controllertest.Create(c, newDaemonSet("agent"))
			c.Eventually("a pod on each node", on(c, "image:1", "one", "two", "three"))
			for i, image := range []string{"image:2", "image:1"} {
				patch := fmt.Sprintf(`{"spec":{"updateStrategy":%s,"template":{"spec":{"containers":[{"name":"c","image":%q}]}}}}`, strategy, image)
				if _, err := client.Patch[*appsv1.DaemonSet](t.Context(), c.Client, "default", "agent", types.StrategicMergePatchType, []byte(patch)); err != nil {
					t.Fatal(err)
				}
				c.Eventually("all are of "+image, on(c, image, "one", "two", "three"))
				revisions := controllertest.List[*appsv1.ControllerRevision](c)
				highest := int64(0)
				for _, r := range revisions {
					highest = max(highest, r.Revision)
				}
				if len(revisions) != 2 || highest != int64(i+2) {
					t.Errorf("%d revisions up to %d, want 2 up to %d", len(revisions), highest, i+2)
				}
			}
		})
	}
}
