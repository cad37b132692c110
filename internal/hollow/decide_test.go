package hollow

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func podOf(policy corev1.RestartPolicy) *corev1.Pod {
	pod := &corev1.Pod{}
	pod.UID, pod.Name, pod.Namespace = "uid", "a", "default"
	pod.Spec = corev1.PodSpec{RestartPolicy: policy, Containers: []corev1.Container{{Name: "main", Image: "i"}}}
	return pod
}

// after applies Decide repeatedly, whenever the status is due, until d is over.
func after(pod *corev1.Pod, fate Fate, d time.Duration) *corev1.Pod {
	pod = pod.DeepCopy()
	now, end := noon, noon.Add(d)
	for {
		var next time.Duration
		pod.Status, next = Decide(pod, Place{HostIP: "198.18.0.1", PodIP: "10.42.0.2"}, fate, now)
		if next == 0 || now.Add(next).After(end) {
			return pod
		}
		now = now.Add(next)
	}
}

func condition(pod *corev1.Pod, t corev1.PodConditionType) corev1.ConditionStatus {
	if c := find(pod.Status.Conditions, t); c != nil {
		return c.Status
	}
	return ""
}

func TestAPodRunsUntilItIsDeleted(t *testing.T) {
	pod := after(podOf(corev1.RestartPolicyAlways), Fate{}, time.Hour)
	s := pod.Status
	if s.Phase != corev1.PodRunning || condition(pod, corev1.PodReady) != corev1.ConditionTrue || s.PodIP != "10.42.0.2" || s.HostIP != "198.18.0.1" {
		t.Errorf("status %+v", s)
	}
	again, next := Decide(pod, Place{HostIP: s.HostIP, PodIP: s.PodIP}, Fate{}, noon.Add(time.Hour))
	if next != 0 || again.Conditions[0].LastTransitionTime != s.Conditions[0].LastTransitionTime {
		t.Errorf("the status changes without a cause: %+v, next %s", again, next)
	}
	gone := Terminated(pod, noon.Add(2*time.Hour))
	if gone.Phase != corev1.PodSucceeded || gone.ContainerStatuses[0].State.Terminated == nil {
		t.Errorf("after the deletion: %+v", gone)
	}
}

func TestADeletedJobsPodHasFailed(t *testing.T) {
	pod := after(podOf(corev1.RestartPolicyNever), Fate{}, time.Hour)
	if gone := Terminated(pod, noon.Add(2*time.Hour)); gone.Phase != corev1.PodFailed {
		t.Errorf("after the deletion: %+v", gone)
	}
}

func TestHowPodsEnd(t *testing.T) {
	for _, test := range []struct {
		name     string
		policy   corev1.RestartPolicy
		code     int32
		phase    corev1.PodPhase
		restarts int32
	}{
		{"a good end without restarts", corev1.RestartPolicyNever, 0, corev1.PodSucceeded, 0},
		{"a bad end without restarts", corev1.RestartPolicyNever, 1, corev1.PodFailed, 0},
		{"a good end with restarts of failures", corev1.RestartPolicyOnFailure, 0, corev1.PodSucceeded, 0},
		// Starts at 0:00, 1:00, 2:10 (10 s later), 3:30 (20 s later).
		{"bad ends with restarts of failures", corev1.RestartPolicyOnFailure, 1, corev1.PodRunning, 3},
		{"good ends with restarts always", corev1.RestartPolicyAlways, 0, corev1.PodRunning, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			pod := after(podOf(test.policy), Fate{Ends: true, After: time.Minute, ExitCode: test.code}, 4*time.Minute)
			if pod.Status.Phase != test.phase || pod.Status.ContainerStatuses[0].RestartCount != test.restarts {
				t.Errorf("phase %s, %d restarts", pod.Status.Phase, pod.Status.ContainerStatuses[0].RestartCount)
			}
		})
	}
}

func TestAContainerThatEndedWaitsForItsRestart(t *testing.T) {
	pod := after(podOf(corev1.RestartPolicyAlways), Fate{Ends: true, After: time.Minute, ExitCode: 2}, 2*time.Minute+5*time.Second)
	c := pod.Status.ContainerStatuses[0]
	if c.State.Waiting == nil || c.State.Waiting.Reason != "CrashLoopBackOff" || c.LastTerminationState.Terminated.ExitCode != 2 || c.RestartCount != 1 {
		t.Errorf("container %+v", c)
	}
	if pod.Status.Phase != corev1.PodRunning || condition(pod, corev1.PodReady) != corev1.ConditionFalse {
		t.Errorf("phase %s, ready %s", pod.Status.Phase, condition(pod, corev1.PodReady))
	}
}

func TestAContainerWaitsWithAReason(t *testing.T) {
	pod := after(podOf(corev1.RestartPolicyAlways), Fate{Waiting: "ImagePullBackOff"}, time.Hour)
	if pod.Status.Phase != corev1.PodPending || pod.Status.ContainerStatuses[0].State.Waiting.Reason != "ImagePullBackOff" {
		t.Errorf("status %+v", pod.Status)
	}
	pod = after(pod, Fate{}, time.Minute)
	if pod.Status.Phase != corev1.PodRunning {
		t.Errorf("phase %s once the image is there", pod.Status.Phase)
	}
}

func TestAReadinessGateKeepsAPodFromBeingReady(t *testing.T) {
	pod := podOf(corev1.RestartPolicyAlways)
	pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "example.com/gate"}}
	pod = after(pod, Fate{}, time.Minute)
	if condition(pod, corev1.ContainersReady) != corev1.ConditionTrue || condition(pod, corev1.PodReady) != corev1.ConditionFalse {
		t.Errorf("conditions %+v", pod.Status.Conditions)
	}
	pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: "example.com/gate", Status: corev1.ConditionTrue})
	if pod = after(pod, Fate{}, time.Minute); condition(pod, corev1.PodReady) != corev1.ConditionTrue {
		t.Errorf("conditions with the gate open %+v", pod.Status.Conditions)
	}
}

func TestInitContainersEndAndSidecarsStay(t *testing.T) {
	pod := podOf(corev1.RestartPolicyNever)
	always := corev1.ContainerRestartPolicyAlways
	pod.Spec.InitContainers = []corev1.Container{{Name: "first"}, {Name: "beside", RestartPolicy: &always}}
	pod = after(pod, Fate{}, time.Minute)
	init := pod.Status.InitContainerStatuses
	if init[0].State.Terminated == nil || init[1].State.Running == nil || pod.Status.Phase != corev1.PodRunning {
		t.Errorf("status %+v", pod.Status)
	}
}
