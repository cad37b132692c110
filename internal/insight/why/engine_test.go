package why

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func pod(name string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: metav1.NewTime(now.Add(-time.Minute))}}
	p.Spec.Containers, p.Status.Phase = []corev1.Container{{Name: "c", Image: "app"}}, corev1.PodPending
	if change != nil {
		change(p)
	}
	return p
}

func ask(t *testing.T, subject Ref, logs map[string]string, objects ...runtime.Object) *Answer {
	t.Helper()
	a, err := Evaluate(SnapshotOf(now, logs, objects...), Question{Subject: &subject})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAChainLeadsToTheRootCause(t *testing.T) {
	class := "fast"
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}}
	claim.Spec.StorageClassName, claim.Status.Phase = &class, corev1.ClaimPending
	web := pod("web", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "d", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	})
	known := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "local"}}
	a := ask(t, Ref{"Pod", "shop", "web"}, nil, web, claim, known)
	if len(a.Roots) != 1 || a.Roots[0].Subject != (Ref{"StorageClass", "", "fast"}) {
		t.Fatalf("the root cause is %+v, not the missing class", a.Roots)
	}
	if a.Findings[0].Root || a.Findings[0].Because[0].Subject.Name != "data" {
		t.Errorf("the chain does not go over the claim")
	}
	again := ask(t, Ref{"Pod", "shop", "web"}, nil, known, claim, web)
	if !reflect.DeepEqual(a, again) {
		t.Error("the same data in another order gives another answer")
	}
}

func TestCyclesEnd(t *testing.T) {
	e := &engine{s: SnapshotOf(now, nil, pod("a", nil)), known: map[Ref][]*Finding{}, open: map[Ref]bool{{"Pod", "shop", "a"}: true}}
	if found, _ := e.explain(Ref{"Pod", "shop", "a"}, 1); len(found) != 0 {
		t.Errorf("an object on the chain at hand has findings: %v", found)
	}
}

func TestAMissingSubjectIsAnError(t *testing.T) {
	_, err := Evaluate(SnapshotOf(now, nil), Question{Subject: &Ref{"Pod", "shop", "gone"}})
	if !errors.Is(err, ErrNoSubject) {
		t.Errorf("the error is %v", err)
	}
}

func TestHostileTextIsCleaned(t *testing.T) {
	crashing := pod("web", func(p *corev1.Pod) {
		p.Spec.NodeName = "n"
		p.Status.Phase = corev1.PodRunning
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{
			Name: "c", RestartCount: 3, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reasonCrashLoop}},
			LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: "\x1b[2Jgone\u202e"}},
		}}
	})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	log := "panic: \x1b]0;title\x07 here\n" + strings.Repeat("x", 10<<10)
	a := ask(t, Ref{"Pod", "shop", "web"}, map[string]string{"shop/web/c": log}, crashing, node)
	var out bytes.Buffer
	if err := Print(&out, a); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); strings.ContainsAny(text, "\x1b\x07\u202e") || !strings.Contains(text, "panic:") || len(text) > 8<<10 {
		t.Errorf("the text is not clean or too long: %q", text)
	}
	for _, line := range strings.Split(out.String(), "\n") {
		if len([]rune(line)) > columns {
			t.Errorf("a line has %d columns", len([]rune(line)))
		}
	}
}

// deniedReader may read nothing but pods.
type deniedReader struct{ pods []runtime.Object }

func (d deniedReader) read(_ context.Context, needs []need) []*reply {
	out := make([]*reply, len(needs))
	for i, n := range needs {
		if out[i] = newReply(d.pods); n.what != "objects" || n.resource.Resource != "pods" {
			out[i] = &reply{err: errors.New("forbidden")}
		}
	}
	return out
}

func TestUnreadLookupsAreNamedNotGuessed(t *testing.T) {
	web := pod("web", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "d", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "0/1 nodes are available"}}
	})
	a, err := Explain(t.Context(), deniedReader{[]runtime.Object{web}}, Question{Subject: &Ref{"Pod", "shop", "web"}}, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range a.Findings {
		if f.Cause == causeClaim {
			t.Error("a claim that cannot be read is said to be missing")
		}
	}
	if text := strings.Join(a.Unread, "\n"); !strings.Contains(text, "persistentvolumeclaims/data in namespace shop") || !strings.Contains(text, "nodes") {
		t.Errorf("unread: %s", text)
	}
}

// FuzzClean checks that no text reaches a terminal with control characters or without a limit.
func FuzzClean(f *testing.F) {
	f.Add("plain", 10)
	f.Add("\x1b[31mred\x00\u202e\xff", 5)
	f.Fuzz(func(t *testing.T, text string, most int) {
		if most < 0 || most > 1<<16 {
			return
		}
		out := clean(text, most)
		if len(out) > most+len("…") || strings.ContainsAny(out, "\x00\x07\x1b\u202e\u200b") {
			t.Errorf("%q became %q", text, out)
		}
	})
}

// BenchmarkCluster examines 5,000 pods, 100 of which fit on none of 500 nodes.
func BenchmarkCluster(b *testing.B) {
	var objects []runtime.Object
	for i := range 500 {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("n", i)}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110")}
		objects = append(objects, n)
	}
	for i := range 5000 {
		objects = append(objects, pod(fmt.Sprint("p", i), func(p *corev1.Pod) {
			if i < 100 {
				p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100")}
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse}}
				return
			}
			p.Spec.NodeName, p.Status.Phase = fmt.Sprint("n", i%500), corev1.PodRunning
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", Ready: true, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		}))
	}
	for b.Loop() {
		a, err := Evaluate(SnapshotOf(now, nil, objects...), Question{})
		if err != nil || len(a.Roots) != 100 {
			b.Fatalf("%d root causes, %v", len(a.Roots), err)
		}
	}
}
