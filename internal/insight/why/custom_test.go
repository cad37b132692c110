package why

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// customObjects reads custom resources, and built-in objects behind them.
func customObjects(t *testing.T, custom, builtIn string) []runtime.Object {
	t.Helper()
	u := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(custom))
	if err == nil {
		err = u.UnmarshalJSON(data)
	}
	if err != nil {
		t.Fatalf("%v in %s", err, custom)
	}
	out := []runtime.Object{u}
	if builtIn != "" {
		out = append(out, decode(t, builtIn)...)
	}
	return out
}

func widget(fields string) string {
	return "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a, namespace: x, uid: u1, generation: 3, creationTimestamp: \"2029-12-31T00:00:00Z\"}\n" + fields
}

const widgetDefinition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: widgets.example.com}\n" +
	"spec: {group: example.com, names: {plural: widgets, kind: Widget}, versions: [{name: v1, subresources: {status: {}}}]}\nstatus: {conditions: [{type: Established, status: \"True\"}]}"

const crashingChild = "kind: Pod\nmetadata: {name: child, namespace: x, ownerReferences: [{apiVersion: example.com/v1, kind: Widget, name: a, uid: u1, controller: true}]}\n" +
	"spec: {nodeName: n1, containers: [{name: c, image: app}]}\nstatus: {phase: Running, containerStatuses: [{name: c, state: {waiting: {reason: CrashLoopBackOff}}, lastState: {terminated: {exitCode: 3}}}]}" + readyNode

func TestCustomResourcesAreExplained(t *testing.T) {
	for _, test := range []struct{ name, custom, builtIn, cause, says string }{
		{"a condition is False", widget("status: {conditions: [{type: Ready, status: 'False', reason: Leaks, message: the hull leaks}]}"), "", causeCondition, "its condition Ready is False: Leaks: the hull leaks."},
		{"a condition is bad when True", widget("status: {conditions: [{type: Stalled, status: 'True', reason: R}, {type: Ready, status: 'False'}]}"), "", causeCondition, "its condition Stalled is True: R."},
		{"an exact condition comes before the summary", widget("status: {conditions: [{type: Ready, status: 'False', reason: NotSynced}, {type: Synced, status: 'False', reason: NoBackend}]}"), "", causeCondition, "Synced is False: NoBackend"},
		{"a condition is Unknown for long", widget("status: {conditions: [{type: Ready, status: Unknown, lastTransitionTime: '2029-12-31T00:00:00Z'}]}"), "", causeCondition, "Ready is Unknown"},
		{"a Certificate is not issued", strings.ReplaceAll(widget("status: {conditions: [{type: Ready, status: 'False', reason: DoesNotExist, message: Issuing certificate as Secret does not exist}]}"), "example.com/v1\nkind: Widget", "cert-manager.io/v1\nkind: Certificate"), "", causeCondition, "DoesNotExist"},
		{"a listener of a Gateway has no certificate", strings.ReplaceAll(widget("status: {conditions: [{type: Accepted, status: 'True'}], listeners: [{name: https, conditions: [{type: ResolvedRefs, status: 'False', reason: InvalidCertificateRef}]}]}"), "example.com/v1\nkind: Widget", "gateway.networking.k8s.io/v1\nkind: Gateway"), "", causeCondition, "of its listener https is False: InvalidCertificateRef"},
		{"a parent does not accept a route", strings.ReplaceAll(widget("status: {parents: [{parentRef: {name: front}, conditions: [{type: Accepted, status: 'False', reason: NotAllowedByListeners}]}]}"), "example.com/v1\nkind: Widget", "gateway.networking.k8s.io/v1\nkind: HTTPRoute"), "", causeCondition, "of its parent front is False"},
		{"a phase is Failed", widget("status: {phase: Failed, message: no space}"), "", causePhase, "its status.phase is Failed."},
		{"a VolumeSnapshot has an error", strings.ReplaceAll(widget("status: {readyToUse: false, error: {message: disk busy}}"), "example.com/v1\nkind: Widget", "snapshot.storage.k8s.io/v1\nkind: VolumeSnapshot"), "", causeStatusError, "disk busy"},
		{"the newest change is not observed", widget("status: {observedGeneration: 2}"), "", causeNotObserved, "generation 2 of 3"},
		{"no controller writes the status", widget("spec: {}"), widgetDefinition, causeNoController, "no controller has written its status"},
		{"an owned pod crashes", widget("status: {conditions: [{type: Ready, status: 'True'}]}"), crashingChild, causeCrash, "ended with status 3"},
		{"an owned pod crashes behind a condition", widget("status: {conditions: [{type: Ready, status: 'False'}]}"), crashingChild, causeCrash, "ended with status 3"},
		{"a reference leads nowhere", widget("spec: {issuerRef: {kind: ConfigMap, name: gone}}\nstatus: {conditions: [{type: Ready, status: 'True'}]}"), "", "configmap-missing", "it does not exist"},
		{"the names of the definition are taken", widget("status: {conditions: [{type: Ready, status: 'False'}]}"), strings.Replace(widgetDefinition, "{type: Established, status: \"True\"}", "{type: NamesAccepted, status: \"False\", reason: Taken}", 1), causeCRDNames, "in use by another"},
		{"a finalizer keeps it", strings.Replace(widget("status: {}"), "uid: u1", "uid: u1, deletionTimestamp: '2029-12-31T01:00:00Z', finalizers: [example.com/clean]", 1), "", causeFinalizer, "example.com/clean"},
	} {
		t.Run(test.name, func(t *testing.T) {
			objects := customObjects(t, test.custom, test.builtIn)
			a := ask(t, refTo(objects[0]), nil, objects...)
			if len(a.Roots) == 0 || a.Roots[0].Cause != test.cause || !strings.Contains(a.Roots[0].Problem, test.says) {
				t.Errorf("the root causes are %+v, not %s: %s", a.Roots, test.cause, test.says)
			}
		})
	}
}

func TestHealthyCustomResourcesHaveNoFindings(t *testing.T) {
	for _, fields := range []string{
		"status: {observedGeneration: 3, conditions: [{type: Ready, status: 'True'}, {type: Stalled, status: 'False'}, {type: Progressing, status: 'True'}]}",
		"status: {conditions: [{type: Paused, status: 'False', reason: NotPaused}]}",
		"status: {phase: Running}",
		"spec: {}", // without a definition it may be plain data
		"status: {conditions: nothing, listeners: [1, {conditions: 7}]}",
	} {
		objects := customObjects(t, widget(fields), "")
		if a := ask(t, refTo(objects[0]), nil, objects...); len(a.Findings) > 0 {
			t.Errorf("%s: %+v", fields, a.Findings[0])
		}
	}
}

// FuzzCustom checks that no status makes the rules fail, and that no text reaches the answer
// without limits.
func FuzzCustom(f *testing.F) {
	f.Add(`{"conditions":[{"type":"Ready","status":"False","message":"\u001b[2J"}]}`)
	f.Add(`{"parents":[{"parentRef":{"name":"a"},"conditions":[null,{"type":1}]}],"observedGeneration":"x","error":{"message":[]}}`)
	f.Fuzz(func(t *testing.T, status string) {
		u := &unstructured.Unstructured{}
		if u.UnmarshalJSON([]byte(`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","namespace":"x"},"status":`+status+`}`)) != nil {
			return
		}
		ref := refTo(u)
		a, err := Evaluate(SnapshotOf(now, nil, u), Question{Subject: &ref})
		if err != nil {
			return
		}
		var out strings.Builder
		if err := Print(&out, a); err != nil || strings.ContainsAny(out.String(), "\x00\x07\x1b\u202e") || out.Len() > 32<<10 {
			t.Errorf("%v, %d bytes: %q", err, out.Len(), out.String())
		}
	})
}
