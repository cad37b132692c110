package node

import (
	"math"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
)

// The delay of the eviction must count from the taint that the pod does not tolerate.
func TestTheEvictionDelayExcludesAnEarlierToleration(t *testing.T) {
	cluster := controllertest.New(t)
	began := time.Now().Truncate(time.Second)
	taints := func(keys ...string) func(*corev1.Node) {
		return func(n *corev1.Node) {
			n.Spec.Taints = nil
			for i, key := range keys {
				at := metav1.NewTime(began.Add(time.Duration(i) * 10 * time.Minute))
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute, TimeAdded: &at})
			}
		}
	}
	n := controllertest.Retry(cluster, controllertest.Node(cluster, "n", nil), taints("tolerated"))
	hour := int64(3600)
	template := controllertest.Template("p")
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: template.Spec}
	pod.Spec.NodeName = "n"
	pod.Spec.Tolerations = []corev1.Toleration{{Key: "tolerated", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &hour}}
	pod = controllertest.Create(cluster, pod)
	pods, err := client.Open[*corev1.Pod](t.Context(), cluster.Client, client.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	nodes, err := client.Open[*corev1.Node](t.Context(), cluster.Client, client.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	seen := func(want int) func() string {
		return func() string {
			_, there := pods.Get(pod.Namespace, "p")
			if have, ok := nodes.Get("", "n"); !there || !ok || len(noExecute(have)) != want {
				return "the Views lag"
			}
			return ""
		}
	}
	now := began
	c := &taintEviction{metrics: NewMetrics(), env: controller.Env{Client: cluster.Client, Events: cluster.Events}, pods: pods, nodes: nodes, now: func() time.Time { return now },
		since: map[types.UID]time.Time{}, names: map[controller.Key]types.UID{}}
	cluster.Eventually("the pod and the taint are seen", seen(1))
	if result, err := c.reconcile(t.Context(), controller.KeyOf(pod)); err != nil || result.After != time.Hour {
		t.Fatalf("a pod that tolerates its node for an hour: %+v, %v", result, err)
	}
	controllertest.Retry(cluster, n, taints("tolerated", "untolerated"))
	cluster.Eventually("the second taint is seen", seen(2))
	before := delays(t, c.metrics)
	now = began.Add(11 * time.Minute)
	if _, err := c.reconcile(t.Context(), controller.KeyOf(pod)); err != nil {
		t.Fatal(err)
	}
	if got := delays(t, c.metrics) - before; math.Abs(got-60) > 1e-6 {
		t.Errorf("the recorded delay is %v s; the taint was added a minute ago", got)
	}
}

// delays returns the sum of all recorded delays.
func delays(t *testing.T, metrics *Metrics) float64 {
	var m dto.Metric
	if err := metrics.podDeletionTimes.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetHistogram().GetSampleSum()
}
