package why

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/architecture"
)

// asUnstructured returns an object of the architecture as a client without types reads it.
func asUnstructured(t *testing.T, kind string, object any) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(architecture.GroupVersion.WithKind(kind))
	return u
}

func failed(condition, reason, message string) metav1.Condition {
	return metav1.Condition{Type: condition, Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

func TestEachConditionOfAComponentHasAFindingWithARemedy(t *testing.T) {
	for _, k := range contradictions {
		c := &architecture.Component{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
		c.Status.Conditions = []metav1.Condition{failed(architecture.Conforms, "Any", "False: "+k.condition), failed(k.condition, "Any", "The message.")}
		found := component(SnapshotOf(time.Now(), nil), asUnstructured(t, "Component", c))
		if len(found) != 1 || found[0].Cause != k.cause || !strings.HasSuffix(found[0].Problem, ": The message.") || found[0].Remedy == "" {
			t.Errorf("%s: %+v", k.condition, found)
		}
	}
}

func TestFindingsOfAComponentLeadToTheWorkloadsThatAreNotReady(t *testing.T) {
	store := &architecture.Component{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "store"}}
	store.Status.Workloads = []architecture.Workload{{Kind: "StatefulSet", Name: "store", Desired: 1}}
	store.Status.Conditions = []metav1.Condition{failed(architecture.Conforms, "Any", "")}
	api := &architecture.Component{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "api"}}
	api.Spec.Requires = []architecture.Requirement{{Component: "store"}}
	api.Status.Workloads = []architecture.Workload{{Kind: "Deployment", Name: "api", Ready: 1, Desired: 2}, {Kind: "Deployment", Name: "well", Ready: 1, Desired: 1}}
	api.Status.Conditions = []metav1.Condition{
		failed(architecture.RequirementsMet, "NotReady", "component shop/store has no ready pod."), failed(architecture.LevelsKept, "TooFewReady", "1 of 2 pods are ready."),
	}
	s := SnapshotOf(time.Now(), nil)
	s.replies[need{what: "objects", resource: architecture.Components.GroupResource()}] = newReply([]runtime.Object{asUnstructured(t, "Component", store)})
	found := component(s, asUnstructured(t, "Component", api))
	if len(found) != 2 {
		t.Fatalf("%+v", found)
	}
	for i, want := range [][]Ref{{{"StatefulSet", "shop", "store"}, {componentKind, "shop", "store"}}, {{"Deployment", "shop", "api"}}} {
		var have []Ref
		for _, l := range found[i].links {
			have = append(have, l.Object)
		}
		if !slices.Equal(have, want) {
			t.Errorf("%s: links %v, want %v", found[i].Cause, have, want)
		}
	}
	shop := &architecture.System{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	shop.Status = architecture.SystemStatus{Count: 2, Conforming: 1, Components: []architecture.ComponentReference{{Namespace: "shop", Name: "store"}}, Conditions: []metav1.Condition{
		failed(architecture.ComponentsConform, "ComponentsFail", "Any."), failed(architecture.MembersFound, "ComponentUnknown", "component shop/x does not exist.")}}
	found = system(s, asUnstructured(t, "System", shop))
	if len(found) != 2 || found[0].Cause != causeSystemMembers || found[1].Problem != "1 of its 2 components do not conform." || len(found[1].links) != 1 {
		t.Errorf("%+v", found)
	}
}
