package autoscale

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
)

var noon = time.Date(2025, 1, 1, 12, 0, 0, 0, time.UTC)

func pod(name string, phase corev1.PodPhase, ready bool, age time.Duration) *corev1.Pod {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	started := metav1.NewTime(noon.Add(-age))
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PodStatus{Phase: phase, StartTime: &started,
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: status, LastTransitionTime: started}}}}
}

func TestReplicasDemandedByAMetric(t *testing.T) {
	old := func(n int) (list []*corev1.Pod) {
		for i := range n {
			list = append(list, pod(fmt.Sprint(i), corev1.PodRunning, true, time.Hour))
		}
		return list
	}
	used := func(values ...int64) map[string]sample {
		out := map[string]sample{}
		for i, v := range values {
			if v >= 0 {
				out[fmt.Sprint(i)] = sample{value: v, at: noon}
			}
		}
		return out
	}
	cases := []struct {
		name    string
		pods    []*corev1.Pod
		samples map[string]sample
		current int32
		want    int32
	}{
		{"twice as much as wanted: twice as many", old(3), used(200, 200, 200), 3, 6},
		{"half as much: half as many", old(4), used(50, 50, 50, 50), 4, 2},
		{"near enough: as many", old(3), used(105, 95, 108), 3, 3},
		{"a pod without sample is idle before more are made", old(3), used(200, 200, -1), 3, 4},
		{"a pod without sample is busy before fewer are made", old(3), used(10, 10, -1), 3, 2},
		{"the unknown ones turn the answer around: as many", old(3), used(150, -1, -1), 3, 3},
		{"a starting pod is idle before more are made", append(old(2), pod("2", corev1.PodRunning, false, time.Second)), used(200, 200, 500), 3, 4},
		{"a failed pod counts for nothing", append(old(2), pod("2", corev1.PodFailed, false, time.Hour)), used(200, 200, 0), 3, 4},
		{"pending pods don't hold back going down", append(old(2), pod("2", corev1.PodPending, false, 0)), used(10, 10), 3, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			groups := sortPods(c.pods, c.samples, true, noon)
			got, err := replicasFor(c.current, groups, average(100), func(*corev1.Pod) int64 { return 100 }, tolerances(nil))
			if err != nil || got != c.want {
				t.Errorf("%d, %v; want %d", got, err, c.want)
			}
		})
	}
}

func TestReplicasDemandedByASharedValue(t *testing.T) {
	v := view{scale: &autoscalingv1.Scale{Spec: autoscalingv1.ScaleSpec{Replicas: 2}, Status: autoscalingv1.ScaleStatus{Replicas: 2}}, tolerance: tolerances(nil),
		pods: []*corev1.Pod{pod("a", corev1.PodRunning, true, time.Hour), pod("b", corev1.PodRunning, true, time.Hour)}}
	for _, c := range []struct {
		name   string
		value  int64
		target autoscalingv2.MetricTarget
		want   int32
	}{
		{"three times the target", 30_000, autoscalingv2.MetricTarget{Value: ptr.To(resource.MustParse("10"))}, 6},
		{"as the target", 10_000, autoscalingv2.MetricTarget{Value: ptr.To(resource.MustParse("10"))}, 2},
		{"ten each", 45_000, autoscalingv2.MetricTarget{AverageValue: ptr.To(resource.MustParse("10"))}, 5},
		{"ten each, near enough", 21_000, autoscalingv2.MetricTarget{AverageValue: ptr.To(resource.MustParse("10"))}, 2},
	} {
		if got, _, err := v.shared(c.value, c.target); err != nil || got != c.want {
			t.Errorf("%s: %d, %v; want %d", c.name, got, err, c.want)
		}
	}
}

func TestScalingFollowsWindowsAndPolicies(t *testing.T) {
	pods := func(n, seconds int32) *autoscalingv2.HorizontalPodAutoscalerBehavior {
		return &autoscalingv2.HorizontalPodAutoscalerBehavior{
			ScaleUp:   &autoscalingv2.HPAScalingRules{Policies: []autoscalingv2.HPAScalingPolicy{{Type: autoscalingv2.PodsScalingPolicy, Value: n, PeriodSeconds: seconds}}},
			ScaleDown: &autoscalingv2.HPAScalingRules{StabilizationWindowSeconds: ptr.To[int32](0), Policies: []autoscalingv2.HPAScalingPolicy{{Type: autoscalingv2.PodsScalingPolicy, Value: n, PeriodSeconds: seconds}}},
		}
	}
	type look struct {
		after  time.Duration
		wanted int32
		want   int32
		why    string
	}
	cases := []struct {
		name     string
		behavior *autoscalingv2.HorizontalPodAutoscalerBehavior
		begin    int32
		looks    []look
	}{
		{"usually it doubles, or grows by four, every fifteen seconds", nil, 2, []look{{0, 50, 6, "ScaleUpLimit"}, {15 * time.Second, 50, 12, "ScaleUpLimit"}, {15 * time.Second, 50, 20, "TooManyReplicas"}}},
		{"usually it goes down five minutes later", nil, 10, []look{{0, 10, 10, ""}, {time.Minute, 2, 10, ""}, {4*time.Minute + time.Second, 2, 2, ""}}},
		{"two pods a minute and no more", pods(2, 60), 4, []look{{0, 20, 6, "ScaleUpLimit"}, {15 * time.Second, 20, 6, "ScaleUpLimit"}, {46 * time.Second, 20, 8, "ScaleUpLimit"}}},
		{"down by two a minute", pods(2, 60), 8, []look{{0, 1, 6, "ScaleDownLimit"}, {15 * time.Second, 1, 6, "ScaleDownLimit"}, {46 * time.Second, 1, 4, "ScaleDownLimit"}}},
		{"never down", &autoscalingv2.HorizontalPodAutoscalerBehavior{ScaleDown: &autoscalingv2.HPAScalingRules{SelectPolicy: ptr.To(autoscalingv2.DisabledPolicySelect), StabilizationWindowSeconds: ptr.To[int32](0)}}, 8, []look{{0, 1, 8, "ScaleDownLimit"}}},
		{"not below the least", pods(100, 60), 8, []look{{0, 0, 1, "TooFewReplicas"}}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h, now, current := &history{}, noon, c.begin
			for i, l := range c.looks {
				now = now.Add(l.after)
				d := h.decide(rulesOf(c.behavior), current, l.wanted, 1, 20, now)
				if d.replicas != l.want || d.limited != l.why {
					t.Fatalf("look %d: %d %s; want %d %s", i, d.replicas, d.limited, l.want, l.why)
				}
				h.changed(rulesOf(c.behavior), current, d.replicas, now)
				current = d.replicas
			}
		})
	}
}

// meter serves metrics.k8s.io: every pod of the cluster uses the same number of millicores.
type meter struct {
	client.Interface
	cores *atomic.Int64
}

func (m meter) List(ctx context.Context, res schema.GroupVersionResource, namespace string, opts metav1.ListOptions) (runtime.Object, error) {
	if res.Group != "metrics.k8s.io" {
		return m.Interface.List(ctx, res, namespace, opts)
	}
	pods, err := m.Interface.List(ctx, corev1.SchemeGroupVersion.WithResource("pods"), namespace, opts)
	if err != nil {
		return nil, err
	}
	list := &unstructured.UnstructuredList{Object: map[string]any{"kind": "PodMetricsList", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": map[string]any{}}}
	for _, p := range pods.(*corev1.PodList).Items {
		list.Items = append(list.Items, unstructured.Unstructured{Object: map[string]any{
			"kind": "PodMetrics", "apiVersion": "metrics.k8s.io/v1beta1", "metadata": map[string]any{"name": p.Name, "namespace": namespace},
			"timestamp": time.Now().UTC().Format(time.RFC3339), "window": "1s",
			"containers": []any{map[string]any{"name": "c", "usage": map[string]any{"cpu": fmt.Sprintf("%dm", m.cores.Load())}}},
		}})
	}
	return list, nil
}

func TestADeploymentGrowsWithItsLoad(t *testing.T) {
	c := controllertest.New(t)
	template := controllertest.Template("web")
	template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("100m")}
	d := controllertest.Create(c, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: template.Labels}, Template: template}})
	controllertest.Retry(c, d, func(d *appsv1.Deployment) { d.Status.Replicas = 1 }, "status")
	p := controllertest.Create(c, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1", Labels: template.Labels}, Spec: template.Spec})
	controllertest.Retry(c, p, func(p *corev1.Pod) { p.Status = pod("", corev1.PodRunning, true, 0).Status }, "status")
	controllertest.Create(c, &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
		ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "web"}, MaxReplicas: 10,
		Metrics: []autoscalingv2.MetricSpec{{Type: autoscalingv2.ResourceMetricSourceType, Resource: &autoscalingv2.ResourceMetricSource{
			Name: "cpu", Target: autoscalingv2.MetricTarget{Type: autoscalingv2.UtilizationMetricType, AverageUtilization: ptr.To[int32](50)}}}},
	}})
	cores := &atomic.Int64{}
	cores.Store(150) // 150% of the request, three times the target
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- Horizontal.Run(ctx, controller.Env{Client: meter{c.Client, cores}, Events: c.Events}) }()
	t.Cleanup(func() { cancel(); <-done })
	c.Eventually("the deployment has three replicas", func() string {
		d, err := client.Get[*appsv1.Deployment](t.Context(), c.Client, "default", "web")
		if err != nil || *d.Spec.Replicas != 3 {
			return fmt.Sprint(*d.Spec.Replicas, " replicas, ", err, c.Events.List())
		}
		return ""
	})
	c.Eventually("the status counts them", func() string {
		a, err := client.Get[*autoscalingv2.HorizontalPodAutoscaler](t.Context(), c.Client, "default", "web")
		if err != nil || a.Status.DesiredReplicas != 3 || len(a.Status.CurrentMetrics) != 1 || *a.Status.CurrentMetrics[0].Resource.Current.AverageUtilization != 150 {
			return fmt.Sprintf("%+v %v", a.Status, err)
		}
		return ""
	})
}
