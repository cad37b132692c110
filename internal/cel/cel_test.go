package cel

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func compiler(t testing.TB, scope Scope) *Compiler {
	t.Helper()
	c, err := New(scope)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func input() Input {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Labels: map[string]string{"app": "web"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}}
	return Input{
		Object: OfObject(pod), OldObject: OfObject((*corev1.Pod)(nil)), Params: OfObject(nil),
		Request: OfRequest(func() *admissionv1.AdmissionRequest {
			return &admissionv1.AdmissionRequest{Operation: "CREATE", Name: "p"}
		}),
		Namespace: OfNamespace(func() *corev1.Namespace { return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "ns"}} }),
	}
}

func TestExpressionsReadTheWrite(t *testing.T) {
	for expression, want := range map[string]any{
		"object.metadata.name == request.name": true,
		"oldObject == null":                    true,
		"namespaceObject.metadata.name":        "ns",
		"request.operation":                    "CREATE",
		"has(object.metadata.labels) && size(object.spec.containers) == 1": true,
		"params == null": true,
		"isQuantity('20Mi') && quantity('20Mi').isLessThan(quantity('1Gi'))": true,
		"object.metadata.?annotations['a'].orValue('none')":                  "none",
	} {
		c := compiler(t, Scope{Params: true})
		v, err := c.Evaluate(t.Context(), input(), Budget).Eval(c.Compile(expression, Anything))
		if err != nil || v.Value() != want {
			t.Errorf("%s is %v (%v), want %v", expression, v, err, want)
		}
	}
}

func TestInvalidExpressionsReportTheCause(t *testing.T) {
	for expression, want := range map[string]string{
		"object.":               "compilation failed: ERROR: <input>:1:8: Syntax error",
		"request.nothing == ''": "undefined field 'nothing'",
		"params.a":              "undeclared reference to 'params'",
		"'text'":                "must evaluate to bool",
		"variables.a":           "undeclared reference to 'variables'",
	} {
		if p := compiler(t, Scope{}).Compile(expression, Bool); p.Err == nil || !strings.Contains(p.Err.Error(), want) {
			t.Errorf("%s gives %v, want %s", expression, p.Err, want)
		}
	}
}

func TestVariablesAreEvaluatedOnceWhenRead(t *testing.T) {
	c := compiler(t, Scope{})
	for name, expression := range map[string]string{"broken": "object.nothing"} {
		if _, err := c.Declare(name, expression); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Declare("app", "object.metadata.labels['app']"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Declare("long", "variables.app + '-x'"); err != nil {
		t.Fatal(err)
	}
	e := c.Evaluate(t.Context(), input(), Budget)
	if v, err := e.Eval(c.Compile("variables.long", String)); err != nil || v.Value() != "web-x" {
		t.Errorf("variables.long is %v, %v", v, err)
	}
	before := e.left
	if _, err := e.Eval(c.Compile("variables.long == 'web-x'", Bool)); err != nil {
		t.Error(err)
	}
	if spent := before - e.left; spent > 3 {
		t.Errorf("reading a variable again cost %d", spent)
	}
	if _, err := e.Eval(c.Compile("variables.broken == 'x'", Bool)); err == nil || !strings.Contains(err.Error(), `composited variable "broken" fails to evaluate: no such key`) {
		t.Errorf("a broken variable gives %v", err)
	}
	if p := c.Compile("variables.other", Anything); p.Err == nil {
		t.Error("an undeclared variable compiles")
	}
}

func TestEvaluationStopsWhenTheBudgetIsUsedUp(t *testing.T) {
	c := compiler(t, Scope{})
	e := c.Evaluate(t.Context(), input(), 5)
	p := c.Compile("[1,2,3,4,5,6,7,8].all(x, x < 9)", Bool)
	if _, err := e.Eval(p); !errors.Is(err, ErrBudget) {
		t.Errorf("an expression above the budget gives %v", err)
	}
	if _, err := e.Eval(c.Compile("true", Bool)); !errors.Is(err, ErrBudget) {
		t.Errorf("after the budget is used up, an expression gives %v", err)
	}
}

func TestACostlyExpressionIsStopped(t *testing.T) {
	c := compiler(t, Scope{})
	p := c.Compile("[1,2,3,4,5,6,7,8,9,0].all(a, [1,2,3,4,5,6,7,8,9,0].all(b, [1,2,3,4,5,6,7,8,9,0].all(c, [1,2,3,4,5,6,7,8,9,0].all(d, [1,2,3,4,5,6,7,8,9,0].all(e, [1,2,3,4,5,6,7,8,9,0].all(f, a+b+c+d+e+f < 100))))))", Bool)
	if _, err := c.Evaluate(t.Context(), input(), Budget).Eval(p); err == nil {
		t.Error("a million steps were allowed")
	}
}

func FuzzCompile(f *testing.F) {
	for _, s := range []string{"object.spec.replicas <= 5", "variables.a == params.b", "'x'.matches('(')", "[1].map(x, x)", "Object{spec: Object.spec{}}", "\"\\xff\""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, expression string) {
		if len(expression) > 4096 {
			return
		}
		c := compiler(t, Scope{Params: true, Authorizer: true, Patches: true})
		p := c.Compile(expression, Anything)
		if p.Err == nil {
			_, _ = c.Evaluate(t.Context(), input(), 10000).Eval(p)
		}
	})
}

// The library would compute ten to the power of a billion.
func TestQuantitiesInExpressionsAreLimited(t *testing.T) {
	c := compiler(t, Scope{})
	for expression, want := range map[string]string{
		"isQuantity('1e-1000000000')":                             "false",
		"isQuantity('1e-10')":                                     "true",
		"quantity('1.5Gi').isGreaterThan(quantity('1e3'))":        "true",
		"quantity('1e-1000000000').isGreaterThan(quantity('1'))":  "has an exponent that is not between",
		"quantity('1e'+'-1000000000').asApproximateFloat() > 0.0": "has an exponent that is not between",
		"quantity('x').isInteger()":                               "quantities must match the regular expression",
	} {
		p := c.Compile(expression, Anything)
		if p.Err != nil {
			t.Fatal(p.Err)
		}
		got, err := c.Evaluate(t.Context(), input(), 10000).Eval(p)
		if err != nil && !strings.Contains(err.Error(), want) || err == nil && fmt.Sprint(got.Value()) != want {
			t.Errorf("%s: %v %v", expression, got, err)
		}
	}
}
