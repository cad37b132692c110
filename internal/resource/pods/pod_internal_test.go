package pods

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestRowsOfPods(t *testing.T) {
	started := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	waits := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	ended := func(code int32, reason string) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason}}
	}
	status := func(name string, state corev1.ContainerState, ready bool, restarts int32) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: name, State: state, Ready: ready, RestartCount: restarts, Started: ptr.To(ready)}
	}
	pod := func(phase corev1.PodPhase, change func(*corev1.Pod), containers ...corev1.ContainerStatus) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", CreationTimestamp: resourcetest.Ago(time.Hour)}, Status: corev1.PodStatus{Phase: phase, ContainerStatuses: containers}}
		for _, c := range containers {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: c.Name})
		}
		if change != nil {
			change(p)
		}
		return p
	}
	initially := func(containers []corev1.Container, statuses ...corev1.ContainerStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.InitContainers, p.Status.InitContainerStatuses = containers, statuses
		}
	}
	two := []corev1.Container{{Name: "i"}, {Name: "j"}}
	sidecar := []corev1.Container{{Name: "s", RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways)}}
	crashed := status("c", waits("CrashLoopBackOff"), false, 3)
	crashed.LastTerminationState = ended(1, "Error")
	crashed.LastTerminationState.Terminated.FinishedAt = resourcetest.Ago(5 * time.Minute)

	cases := []struct {
		name                    string
		pod                     *corev1.Pod
		ready, status, restarts string
	}{
		{"just created", pod(corev1.PodPending, func(p *corev1.Pod) { p.Spec.Containers = make([]corev1.Container, 2) }), "0/2", "Pending", "0"},
		{"gated", pod(corev1.PodPending, func(p *corev1.Pod) {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Reason: corev1.PodReasonSchedulingGated}}
		}), "0/0", "SchedulingGated", "0"},
		{"image being pulled", pod(corev1.PodPending, nil, status("c", waits("ContainerCreating"), false, 0)), "0/1", "ContainerCreating", "0"},
		{"running the second init container", pod(corev1.PodPending, initially(two, status("i", ended(0, "Completed"), true, 0), status("j", started, false, 0)),
			status("c", waits("PodInitializing"), false, 0)), "0/1", "Init:1/2", "0"},
		{"a failed init container", pod(corev1.PodPending, initially(two, status("i", ended(2, ""), false, 4))), "0/0", "Init:ExitCode:2", "4"},
		{"an init container in back-off", pod(corev1.PodPending, initially(two, status("i", waits("CrashLoopBackOff"), false, 1))), "0/0", "Init:CrashLoopBackOff", "1"},
		{"running", pod(corev1.PodRunning, nil, status("c", started, true, 0)), "1/1", "Running", "0"},
		{"running with a sidecar", pod(corev1.PodRunning, initially(sidecar, status("s", started, true, 1)), status("c", started, true, 0)), "2/2", "Running", "1"},
		{"crashing", pod(corev1.PodRunning, nil, crashed), "0/1", "CrashLoopBackOff", "3 (5m ago)"},
		{"one completed and one running container", pod(corev1.PodRunning, nil, status("a", ended(0, "Completed"), false, 0), status("b", started, true, 0)), "1/2", "NotReady", "0"},
		{"completed", pod(corev1.PodSucceeded, nil, status("c", ended(0, "Completed"), false, 0)), "0/1", "Completed", "0"},
		{"killed by a signal", pod(corev1.PodFailed, nil, corev1.ContainerStatus{Name: "c", State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Signal: 9}}}), "0/1", "Signal:9", "0"},
		{"evicted", pod(corev1.PodFailed, func(p *corev1.Pod) { p.Status.Reason = "Evicted" }), "0/0", "Evicted", "0"},
		{"being deleted", pod(corev1.PodRunning, func(p *corev1.Pod) { t := resourcetest.Ago(0); p.DeletionTimestamp = &t }, status("c", started, true, 0)), "1/1", "Terminating", "0"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			row := podRow(c.pod, resourcetest.Now)
			if row[1] != c.ready || row[2] != c.status || row[3] != c.restarts || row[4] != "60m" {
				t.Errorf("got %v, want ready %s, status %s, restarts %s", row, c.ready, c.status, c.restarts)
			}
		})
	}
}

func TestQOSClass(t *testing.T) {
	list := func(cpu, memory string) corev1.ResourceList {
		l := corev1.ResourceList{}
		if cpu != "" {
			l[corev1.ResourceCPU] = resource.MustParse(cpu)
		}
		if memory != "" {
			l[corev1.ResourceMemory] = resource.MustParse(memory)
		}
		return l
	}
	cases := []struct {
		name             string
		requests, limits corev1.ResourceList
		want             corev1.PodQOSClass
	}{
		{"no requests and limits", nil, nil, corev1.PodQOSBestEffort},
		{"zero quantities", list("0", "0"), list("0", "0"), corev1.PodQOSBestEffort},
		{"a request without a limit", list("1", ""), nil, corev1.PodQOSBurstable},
		{"only one resource limited", list("1", ""), list("1", ""), corev1.PodQOSBurstable},
		{"limits equal to requests", list("1", "1Gi"), list("1000m", "1Gi"), corev1.PodQOSGuaranteed},
		{"limits above requests", list("1", "1Gi"), list("2", "1Gi"), corev1.PodQOSBurstable},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: c.requests, Limits: c.limits}}}}}
			if got := QOSClass(p); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestLongListsOfPodsAreNotComparedEachWithEach(t *testing.T) {
	names := resourcetest.Numbered(resourcetest.Text)
	tolerations := resourcetest.Numbered(func(i int) corev1.Toleration {
		seconds := int64(i % 2)
		return corev1.Toleration{Key: resourcetest.Text(i / 2), Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds}
	})
	// The last toleration equals an earlier one, with its seconds behind another pointer.
	spread := resourcetest.Numbered(func(i int) corev1.TopologySpreadConstraint {
		return corev1.TopologySpreadConstraint{MaxSkew: 1, TopologyKey: resourcetest.Text(i), WhenUnsatisfiable: corev1.DoNotSchedule}
	})
	spread = append(spread, spread[0])
	gates := func(n int) []corev1.PodSchedulingGate {
		return resourcetest.Numbered(func(i int) corev1.PodSchedulingGate { return corev1.PodSchedulingGate{Name: resourcetest.Text(i + n)} })
	}
	expressions := resourcetest.Numbered(func(i int) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: resourcetest.Text(i), Operator: metav1.LabelSelectorOpIn, Values: []string{"a"}}
	})
	expressions = append(expressions, expressions[0], metav1.LabelSelectorRequirement{Key: resourcetest.Text(1), Operator: metav1.LabelSelectorOpExists})
	path := field.NewPath("x")
	for name, c := range map[string]struct {
		errs  field.ErrorList
		kind  field.ErrorType
		count int
	}{
		"both lists of keys":    {validatePodTerm(&corev1.PodAffinityTerm{TopologyKey: "a", LabelSelector: &metav1.LabelSelector{}, MatchLabelKeys: names, MismatchLabelKeys: names[:2]}, path), field.ErrorTypeInvalid, 2},
		"keys and a selector":   {validateMatchKeys(names, &metav1.LabelSelector{MatchExpressions: expressions}, "matchLabelKeys", path), field.ErrorTypeInvalid, 2},
		"spread constraints":    {validateSpread(spread, path), field.ErrorTypeDuplicate, 1},
		"unchanged tolerations": {validateAddedTolerations(tolerations, tolerations, path), field.ErrorTypeForbidden, 0},
		"a removed toleration":  {validateAddedTolerations(tolerations[2:], tolerations, path), field.ErrorTypeForbidden, 1},
		"scheduling gates": {validatePodUpdate(&corev1.Pod{Spec: corev1.PodSpec{SchedulingGates: gates(1)}}, &corev1.Pod{Spec: corev1.PodSpec{SchedulingGates: gates(0)}}).Filter(func(err error) bool {
			e, ok := err.(*field.Error)
			return !ok || e.Detail != "only deletion is allowed, but found new scheduling gate '"+resourcetest.Text(resourcetest.LongList)+"'"
		}), field.ErrorTypeForbidden, 1},
	} {
		if n := resourcetest.OfType(c.errs, c.kind); n != c.count {
			t.Errorf("%s: %d errors of the type %s, want %d", name, n, c.kind, c.count)
		}
	}
}

func TestMatchLabelKeysBecomeSelectorsOfNewPods(t *testing.T) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "a", "hash": "1"}}, Spec: corev1.PodSpec{
		SchedulingGates:           []corev1.PodSchedulingGate{{Name: "g"}},
		TopologySpreadConstraints: []corev1.TopologySpreadConstraint{{LabelSelector: &metav1.LabelSelector{}, MatchLabelKeys: []string{"hash", "none"}}},
		Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
			{PodAffinityTerm: corev1.PodAffinityTerm{LabelSelector: &metav1.LabelSelector{}, MismatchLabelKeys: []string{"app"}}}}}},
	}}
	Strategy().PrepareCreate(p)
	spread := p.Spec.TopologySpreadConstraints[0].LabelSelector.MatchExpressions
	if len(spread) != 1 || spread[0].Key != "hash" || spread[0].Operator != metav1.LabelSelectorOpIn || spread[0].Values[0] != "1" {
		t.Errorf("spread %v", spread)
	}
	anti := p.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm.LabelSelector.MatchExpressions
	if len(anti) != 1 || anti[0].Operator != metav1.LabelSelectorOpNotIn {
		t.Errorf("anti-affinity %v", anti)
	}
	if p.Status.Phase != corev1.PodPending || p.Status.QOSClass != corev1.PodQOSBestEffort || p.Status.Conditions[0].Reason != corev1.PodReasonSchedulingGated {
		t.Errorf("status %+v", p.Status)
	}
}

func TestPodSubresourcesChangeOnlyTheirFields(t *testing.T) {
	one := func(cpu string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}
	}
	old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Generation: 4}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i", Resources: one("1")}}}}
	n := old.DeepCopy()
	n.Labels = map[string]string{"a": "b"}
	n.Spec.Containers[0].Image, n.Spec.Containers[0].Resources = "other", one("2")
	n.Spec.EphemeralContainers = []corev1.EphemeralContainer{{}}
	s := Strategy()

	resized := n.DeepCopy()
	s.Subresource["resize"].Prepare(resized, old)
	if c := resized.Spec.Containers[0]; c.Image != "i" || c.Resources.Requests.Cpu().Value() != 2 || resized.Labels != nil || resized.Spec.EphemeralContainers != nil || resized.Generation != 5 {
		t.Errorf("resize: %+v", resized)
	}
	debugged := n.DeepCopy()
	s.Subresource["ephemeralcontainers"].Prepare(debugged, old)
	if c := debugged.Spec.Containers[0]; c.Image != "i" || c.Resources.Requests.Cpu().Value() != 1 || len(debugged.Spec.EphemeralContainers) != 1 || debugged.Generation != 5 {
		t.Errorf("ephemeralcontainers: %+v", debugged)
	}
}

func TestGracePeriodOfPods(t *testing.T) {
	cases := []struct {
		name  string
		pod   corev1.Pod
		asked *int64
		want  int64
	}{
		{"the grace period of the spec", corev1.Pod{Spec: corev1.PodSpec{NodeName: "n", TerminationGracePeriodSeconds: ptr.To(int64(30))}}, nil, 30},
		{"the grace period of the client", corev1.Pod{Spec: corev1.PodSpec{NodeName: "n", TerminationGracePeriodSeconds: ptr.To(int64(30))}}, ptr.To(int64(5)), 5},
		{"negative is one second", corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}}, ptr.To(int64(-1)), 1},
		{"a pod without a node", corev1.Pod{Spec: corev1.PodSpec{TerminationGracePeriodSeconds: ptr.To(int64(30))}}, nil, 0},
		{"a finished pod", corev1.Pod{Spec: corev1.PodSpec{NodeName: "n"}, Status: corev1.PodStatus{Phase: corev1.PodFailed}}, ptr.To(int64(9)), 0},
	}
	for _, c := range cases {
		if got, graceful := podGrace(&c.pod, &metav1.DeleteOptions{GracePeriodSeconds: c.asked}); got != c.want || !graceful {
			t.Errorf("%s: %d, %v", c.name, got, graceful)
		}
	}
}

func TestMirrorPodsNeedANode(t *testing.T) {
	for _, value := range []string{"", "a"} {
		errs := validatePod(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{corev1.MirrorPodAnnotationKey: value}}})
		if text := errs.ToAggregate().Error(); !strings.Contains(text, "must set spec.nodeName if mirror pod annotation is set") {
			t.Errorf("%q: %s", value, text)
		}
	}
}
