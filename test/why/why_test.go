package why

import (
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubectl/pkg/describe"

	"github.com/knarr-project/knarr/internal/insight/why"
)

// table is where `make why` writes its table.
var table = flag.String("table", "", "write the answers beside kubectl describe's into this file")

// patience is how long controllers have to reach the situation.
const patience = 20 * time.Second

// minimum is the share of situations whose root cause must be named, in percent.
const minimum = 95

// row is the judgement of one situation.
type row struct {
	situation
	got, described string
	root           *why.Root
}

// TestRootCausesAreNamed makes every situation and compares the first root cause with the known
// one.
func TestRootCausesAreNamed(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts clusters")
	}
	situations, err := readSituations("testdata")
	if err != nil {
		t.Fatal(err)
	}
	rows := make([]row, len(situations))
	shared := startCluster(t, 0)
	shared.create(t.Context(), manualNode, "")
	t.Run("situations", func(t *testing.T) {
		for i, s := range situations {
			t.Run(s.title, func(t *testing.T) {
				cluster := &broken{t: t, config: shared.config, client: shared.client, typed: shared.typed}
				if s.nodes >= 0 {
					cluster = startCluster(t, s.nodes)
				}
				rows[i] = judge(t.Context(), cluster, s, "s"+strconv.Itoa(i))
			})
		}
	})
	named := 0
	for _, r := range rows {
		if r.got == r.cause {
			named++
			continue
		}
		t.Logf("%s: the root cause is %s, not %s", r.title, r.cause, r.got)
	}
	t.Logf("named: %d of %d root causes", named, len(rows))
	if named*100 < minimum*len(rows) {
		t.Errorf("%d of %d root causes are named, at least %d %% must be", named, len(rows), minimum)
	}
	if *table != "" {
		if err := os.WriteFile(*table, []byte(markdown(rows, named)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// judge makes a situation and asks until the answer is the expected one, or patience ends.
func judge(ctx context.Context, b *broken, s situation, namespace string) row {
	r := row{situation: s}
	if _, err := b.typed.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		b.t.Fatal(err)
	}
	b.awaitAccount(ctx, namespace)
	b.build(ctx, &s, namespace)
	reader, err := why.NewReader(b.config)
	if err != nil {
		b.t.Fatal(err)
	}
	question := questionOf(b.t, s, namespace)
	for end := time.Now().Add(patience); ; {
		if s.later > 0 {
			b.renewLeases(ctx, s.later)
		}
		answer, err := why.Explain(ctx, reader, question, time.Now().Add(s.later))
		switch {
		case err != nil:
			r.got = err.Error()
		case len(answer.Roots) == 0:
			r.got = "nothing"
		default:
			r.root, r.got = &answer.Roots[0], answer.Roots[0].Cause
		}
		if r.got == s.cause || time.Now().After(end) {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if r.got != s.cause {
		answer, _ := why.Explain(ctx, reader, question, time.Now().Add(s.later))
		if answer != nil {
			_ = why.Print(b.t.Output(), answer)
		}
	}
	if *table != "" && question.Subject != nil {
		r.described = b.describe(*question.Subject)
	}
	return r
}

// renewLeases renews the controllers' Leases as if it were later: the controllers still run then.
func (b *broken) renewLeases(ctx context.Context, later time.Duration) {
	leases, err := b.typed.CoordinationV1().Leases(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	for i := range leases.Items {
		l := &leases.Items[i]
		l.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(later)}
		// A holder may renew its Lease at the same time: the next call comes soon.
		if _, err := b.typed.CoordinationV1().Leases(l.Namespace).Update(ctx, l, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
			b.t.Fatal(err)
		}
	}
}

// awaitAccount waits for the default service account: pods are refused before.
func (b *broken) awaitAccount(ctx context.Context, namespace string) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err := b.typed.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{}); err == nil {
			return
		}
	}
	b.t.Fatal("no default service account")
}

func questionOf(t *testing.T, s situation, namespace string) why.Question {
	t.Helper()
	ref := func(text string) why.Ref {
		name, object, _ := strings.Cut(strings.ReplaceAll(text, "NS", namespace), "/")
		kind, ok := why.ResolveKind(name)
		if !ok {
			return why.Ref{Kind: name, Namespace: namespace, Name: object}
		}
		r := why.Ref{Kind: kind.Kind.Kind, Name: object}
		if kind.Namespaced {
			r.Namespace = namespace
		}
		return r
	}
	switch {
	case len(s.ask) > 0:
		subject := ref(s.ask[0])
		return why.Question{Subject: &subject}
	case strings.Contains(s.deny[0], "/"):
		port, _ := strconv.ParseInt(s.deny[2], 10, 32)
		traffic := why.Traffic{From: ref(s.deny[0]), To: ref(s.deny[1]), Port: int32(port)}
		return why.Question{Ask: func(s *why.Snapshot) []why.Finding { return why.Blocked(s, traffic) }}
	}
	request := why.Request{User: s.deny[0], Groups: []string{"system:authenticated"}, Verb: s.deny[1], Resource: s.deny[2], Namespace: namespace}
	return why.Question{Ask: func(s *why.Snapshot) []why.Finding {
		found, _ := why.Denied(s, request)
		return found
	}}
}

// describe returns the last event of `kubectl describe`, or the conditions' messages without one.
func (b *broken) describe(ref why.Ref) string {
	kind, ok := why.ResolveKind(ref.Kind)
	if !ok {
		return b.describeCustom(ref)
	}
	describer, ok := describe.DescriberFor(schema.GroupKind{Group: kind.Kind.Group, Kind: kind.Kind.Kind}, b.config)
	if !ok {
		return "(kubectl has no describer of its own)"
	}
	return lastEvent(describer.Describe(ref.Namespace, ref.Name, describe.DescriberSettings{ShowEvents: true}))
}

// lastEvent finds the last event in a description.
func lastEvent(text string, err error) string {
	if err != nil {
		return err.Error()
	}
	_, events, _ := strings.Cut(text, "\nEvents:")
	lines := strings.Split(strings.TrimSpace(events), "\n")
	last := strings.Join(strings.Fields(lines[len(lines)-1]), " ")
	if last == "" || last == "<none>" {
		return "no event"
	}
	return last
}

// describeCustom does the same for a custom resource.
func (b *broken) describeCustom(ref why.Ref) string {
	kind, group, _ := strings.Cut(ref.Kind, ".")
	mapping := &meta.RESTMapping{
		Resource:         schema.GroupVersionResource{Group: group, Version: "v1", Resource: kind + "s"},
		GroupVersionKind: schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}, Scope: meta.RESTScopeNamespace,
	}
	describer, ok := describe.GenericDescriberFor(mapping, b.config)
	if !ok {
		return "(kubectl cannot describe it)"
	}
	return lastEvent(describer.Describe(ref.Namespace, ref.Name, describe.DescriberSettings{ShowEvents: true}))
}

// moment matches times, which differ in each run.
var moment = regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)? UTC`)

// markdown writes the table of all situations.
func markdown(rows []row, named int) string {
	var out strings.Builder
	out.WriteString("<!-- `make why` writes this page. -->\n# Broken situations, and the answers of both commands\n\n" +
		"Nodes run no containers here: events of a kubelet are missing, or a situation makes them. TIME is\n" +
		"a moment of the run.\n\n")
	fmt.Fprintf(&out, "| situation | `knarr why`: root cause | `kubectl describe`: last event |\n|---|---|---|\n")
	cell := func(text string) string {
		text = moment.ReplaceAllString(text, "TIME")
		if runes := []rune(text); len(runes) > 160 {
			text = string(runes[:159]) + "…"
		}
		return strings.NewReplacer("|", `\|`, "\n", " ", "<", "&lt;").Replace(text)
	}
	slices.SortStableFunc(rows, func(a, b row) int { return strings.Compare(a.file, b.file) })
	for _, r := range rows {
		said := "(" + r.got + ")"
		if r.root != nil {
			said = r.root.Subject.String() + ": " + r.root.Problem
		}
		fmt.Fprintf(&out, "| %s | %s | %s |\n", cell(r.title), cell(said), cell(r.described))
	}
	fmt.Fprintf(&out, "\n`knarr why` names %d of %d root causes.\n", named, len(rows))
	return out.String()
}
