package apiserver

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/apiserver/audit"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
)

// bindable creates a pod and returns its binding with an event.
func bindable(t *testing.T, c client.Interface, name string) (*corev1.Binding, *corev1.Event) {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i"}}
	if _, err := client.Create(t.Context(), c, pod); err != nil {
		t.Fatal(err)
	}
	binding := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}
	return binding, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: name + ".1"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: "default", Name: name},
		Reason:         "Scheduled", Type: corev1.EventTypeNormal, Source: corev1.EventSource{Component: "tester"}, Count: 1,
	}
}

func boundTo(t *testing.T, c client.Interface, name string) *corev1.Pod {
	t.Helper()
	pod, err := client.Get[*corev1.Pod](t.Context(), c, "default", name)
	if err != nil {
		t.Fatal(err)
	}
	return pod
}

func TestABindingAndItsEventAreOneCommit(t *testing.T) {
	c := newTestServer(t).Client(auth.Component("tester"))
	binding, event := bindable(t, c, "p")
	if recorded, err := client.Bind(t.Context(), c, binding, event); err != nil || !recorded {
		t.Fatalf("recorded %v, %v", recorded, err)
	}
	stored, err := client.Get[*corev1.Event](t.Context(), c, "default", event.Name)
	if err != nil {
		t.Fatal(err)
	}
	pod := boundTo(t, c, "p")
	if pod.Spec.NodeName != "n" || pod.ResourceVersion != stored.ResourceVersion {
		t.Errorf("the pod on %q has version %s, the event %s", pod.Spec.NodeName, pod.ResourceVersion, stored.ResourceVersion)
	}
	if stored.UID == "" || stored.CreationTimestamp.IsZero() || len(stored.ManagedFields) != 1 || event.UID != "" {
		t.Errorf("the stored event: %+v; the caller's: %+v", stored.ObjectMeta, event.ObjectMeta)
	}
}

func TestARefusedBindingHasNoEvent(t *testing.T) {
	c := newTestServer(t).Client(auth.Component("tester"))
	binding, event := bindable(t, c, "p")
	binding.UID = "another"
	if recorded, err := client.Bind(t.Context(), c, binding, event); !apierrors.IsConflict(err) || recorded {
		t.Fatalf("recorded %v, %v", recorded, err)
	}
	if _, err := client.Get[*corev1.Event](t.Context(), c, "default", event.Name); !apierrors.IsNotFound(err) {
		t.Errorf("the event: %v", err)
	}
}

func TestAPodIsBoundWithoutARefusedEvent(t *testing.T) {
	refuse := func(a *admission.Attributes) bool { return a.Resource.Resource == "events" && a.Instant }
	for name, tc := range map[string]struct {
		change  func(*Config)
		prepare func(t *testing.T, c client.Interface, e *corev1.Event)
	}{
		"whose name is taken": {prepare: func(t *testing.T, c client.Interface, e *corev1.Event) {
			if _, err := client.Create(t.Context(), c, e.DeepCopy()); err != nil {
				t.Fatal(err)
			}
		}},
		"in another namespace": {prepare: func(_ *testing.T, _ client.Interface, e *corev1.Event) { e.Namespace = "other" }},
		"that is invalid":      {prepare: func(_ *testing.T, _ client.Interface, e *corev1.Event) { e.Name = "a/b" }},
		"that needs a webhook": {change: func(c *Config) {
			c.Security.Admission = admission.NewChain(nil, refuser{refuse, admission.ErrNotInstant})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTestServer(t, func(cfg *Config) {
				if tc.change != nil {
					tc.change(cfg)
				}
			}).Client(auth.Component("tester"))
			binding, event := bindable(t, c, "p")
			if tc.prepare != nil {
				tc.prepare(t, c, event)
			}
			if recorded, err := client.Bind(t.Context(), c, binding, event); err != nil || recorded {
				t.Fatalf("recorded %v, %v", recorded, err)
			}
			if pod := boundTo(t, c, "p"); pod.Spec.NodeName != "n" {
				t.Errorf("the pod is on %q", pod.Spec.NodeName)
			}
		})
	}
}

// refuser refuses some writes.
type refuser struct {
	refuses func(*admission.Attributes) bool
	err     error
}

func (refuser) Name() string { return "refuser" }

func (refuser) Handles(admission.Operation) bool { return true }

func (r refuser) Validate(_ context.Context, a *admission.Attributes) error {
	if r.refuses(a) {
		return r.err
	}
	return nil
}

func TestABindingAndItsEventAreRecordedEach(t *testing.T) {
	policy, err := audit.ParsePolicy([]byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse}]"))
	if err != nil {
		t.Fatal(err)
	}
	sink := &events{}
	c := newTestServer(t, func(c *Config) {
		c.Audit = &audit.Log{Policy: policy, Sinks: []audit.Destination{{Sink: sink}}, Logger: c.Logger, Now: time.Now}
	}).Client(auth.Component("tester"))
	binding, event := bindable(t, c, "p")
	sink.take()
	if recorded, err := client.Bind(t.Context(), c, binding, event); err != nil || !recorded {
		t.Fatalf("recorded %v, %v", recorded, err)
	}
	ended := map[string]*auditv1.Event{}
	for _, e := range sink.take() {
		if e.Stage == auditv1.StageResponseComplete {
			ended[e.RequestURI] = e
		}
	}
	for path, name := range map[string]string{"/api/v1/namespaces/default/pods/p/binding": "p", "/api/v1/namespaces/default/events": event.Name} {
		e := ended[path]
		if e == nil || e.Verb != "create" || e.ObjectRef.Name != name || e.RequestObject == nil || e.ResponseStatus.Code != 200 {
			t.Errorf("%s: %+v", path, e)
		}
	}
}
