package timeline

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var doc map[string]any
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestCompareNamesTheFieldsThatDiffer(t *testing.T) {
	for _, c := range []struct{ name, before, after, want string }{
		{"a number", "spec: {replicas: 2}", "spec: {replicas: 3}", "spec.replicas: 2 → 3"},
		{"a new field", "{}", "spec: {paused: true}", "spec.paused: + true"},
		{"a removed field", "spec: {paused: true}", "{}", "spec.paused: - true"},
		{"false is a value", "spec: {paused: true}", "spec: {paused: false}", "spec.paused: true → false"},
		{"an element by name", "spec: {containers: [{name: a, image: x}, {name: b, image: w}]}", "spec: {containers: [{name: b, image: z}, {name: a, image: x}]}",
			"spec.containers[b].image: w → z"},
		{"a new element", "spec: {ports: [{port: 1}]}", "spec: {ports: [{port: 1}, {port: 2}]}", `spec.ports[2]: + {"port":2}`},
		{"elements without a name", "spec: {args: [a, b]}", "spec: {args: [a, c]}", "spec.args[1]: b → c"},
		{"another length", "spec: {args: [a]}", "spec: {args: [a, c]}", `spec.args: ["a"] → ["a","c"]`},
		{"a name with a dot", "metadata: {labels: {a.b/c: x}}", "metadata: {labels: {a.b/c: w}}", "metadata.labels[a.b/c]: x → w"},
		{"noise", "metadata: {generation: 1, managedFields: [1]}\nstatus: {observedGeneration: 1, conditions: [{type: Ready, lastHeartbeatTime: a}]}",
			"metadata: {generation: 2, managedFields: [2]}\nstatus: {observedGeneration: 2, conditions: [{type: Ready, lastHeartbeatTime: b}]}", ""},
		{"text with control characters", "data: {a: x}", `data: {a: "\e[31m y"}`, `data.a: x → "\u001b[31m y"`},
		{"an empty text", `data: {a: x}`, `data: {a: ""}`, `data.a: x → ""`},
	} {
		t.Run(c.name, func(t *testing.T) {
			changes, more := Compare(parse(t, c.before), parse(t, c.after))
			var lines []string
			for i := range changes {
				lines = append(lines, changes[i].text())
			}
			if got := strings.Join(lines, "; "); got != c.want || more != 0 {
				t.Errorf("%s (%d more)\nwant %s", got, more, c.want)
			}
		})
	}
}

func TestCompareIsBounded(t *testing.T) {
	after := map[string]any{}
	for i := range 100 {
		after[fmt.Sprint("k", i)] = strings.Repeat("ü", 1000)
	}
	changes, more := Compare(map[string]any{"data": map[string]any{}}, map[string]any{"data": after})
	if len(changes) != MaxChanges || more != 100-MaxChanges {
		t.Fatal(len(changes), more)
	}
	if text := changes[0].To.(string); len(text) > maxText+3 || !strings.HasSuffix(text, "ü…") {
		t.Error(text)
	}
}

func TestAnswersArePrinted(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	answer := Answer{
		Items: []Item{
			{Time: at.Add(time.Minute), Kind: "Pod", Name: "web-1", Namespace: "shop", Effect: "created", Event: &Event{Type: "Warning", Reason: "Failed", Message: "a\x1b[31mb", Count: 3, Regarding: Reference{Kind: "Pod", Name: "web-1", Namespace: "shop"}}},
			{Time: at, Kind: "Deployment", Name: "web", Namespace: "shop", Effect: "changed", Actor: "ann", Manager: "kubectl", Changes: []Change{{Path: "spec.replicas", From: 1, To: 2}, {Path: "data.a", Hidden: true}}},
			{Time: at.Add(-24 * time.Hour), Kind: "Pod", Name: "web-1", Effect: "removed", Actor: "system:serviceaccount:kube-system:x-controller", Manager: "m"},
		},
		Gaps:   []Gap{{From: at.Add(-time.Hour), To: at.Add(-time.Minute)}},
		Hidden: 2, Continue: "7",
	}
	var b strings.Builder
	if err := answer.Print(&b, Style{Zone: time.UTC, Namespaces: true}); err != nil {
		t.Fatal(err)
	}
	want := `2026-01-01
03:04:05  pod/web-1 removed by x-controller
          changes from 2026-01-02 02:04:05 to 2026-01-02 03:03:05 are missing
2026-01-02
03:04:05  deployment/web in shop changed by ann (kubectl)
            spec.replicas: 1 → 2
            data.a has another value, which is not recorded
03:05:05  warning Failed of pod/web-1 in shop: a [31mb (×3)

There are older changes: --limit shows more.

2 changes of objects that you may not get are not shown.
`
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
}

func TestDifferencesArePrinted(t *testing.T) {
	answer := NetAnswer{Items: []Difference{
		{Effect: "changed", Kind: "Deployment", Name: "web", Before: parse(t, "spec: {replicas: 1}"), After: parse(t, "spec: {replicas: 2}")},
		{Effect: "removed", Kind: "ConfigMap", Name: "a", Before: parse(t, "data: {k: v}")},
		{Effect: "changed", Kind: "Secret", Name: "s", Before: parse(t, "data: {}"), After: parse(t, "data: {}"), Hidden: []string{"data.k"}},
	}}
	var b strings.Builder
	if err := answer.Print(&b, Style{Zone: time.UTC}); err != nil {
		t.Fatal(err)
	}
	want := `deployment/web changed
@@ -1,2 +1,2 @@
  spec:
-   replicas: 1
+   replicas: 2

configmap/a removed
@@ -1,2 +1,0 @@
- data:
-   k: v

secret/s changed
  data.k has another value, which is not recorded
`
	if b.String() != want {
		t.Errorf("%s\nwant\n%s", b.String(), want)
	}
	b.Reset()
	if err := answer.Print(&b, Style{Zone: time.UTC, Colors: true}); err != nil || !strings.Contains(b.String(), red+"-   replicas: 1"+plain) {
		t.Errorf("%v %q", err, b.String())
	}
}

func TestTimesAreParsed(t *testing.T) {
	now := time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"10m": now.Add(-10 * time.Minute), "2d": now.Add(-48 * time.Hour), "0.5d": now.Add(-12 * time.Hour), "0s": now,
		"2026-01-02T03:04:05+01:00": time.Date(2026, 1, 2, 2, 4, 5, 0, time.UTC),
	} {
		if got, err := ParseTime(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v %v", text, got, err)
		}
	}
	for _, text := range []string{"", "10", "-10m", "d", "yesterday", "1e300d", "NaNd"} {
		if got, err := ParseTime(text, now); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func FuzzCompare(f *testing.F) {
	f.Add("a: [{name: x}]", "a: [{name: y}, {name: [1]}]")
	f.Add("metadata: {labels: {a: b}}", "{}")
	f.Fuzz(func(t *testing.T, before, after string) {
		var a, b map[string]any
		if yaml.Unmarshal([]byte(before), &a) != nil || yaml.Unmarshal([]byte(after), &b) != nil {
			return
		}
		changes, _ := Compare(a, b)
		for i := range changes {
			_ = changes[i].text()
		}
		if same, more := Compare(a, a); len(same) > 0 || more > 0 {
			t.Errorf("a document differs from itself: %v", same)
		}
		Quiet(a)
	})
}
