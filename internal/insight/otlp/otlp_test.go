package otlp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/knarr-project/knarr/internal/insight/because"
	"github.com/knarr-project/knarr/internal/insight/causes"
	story "github.com/knarr-project/knarr/internal/insight/trace"
	"github.com/knarr-project/knarr/internal/trace"
	"github.com/knarr-project/knarr/internal/trace/tracetest"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

const client = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func record(revision int64, resource, actor string, because_ ...int64) *causes.Record {
	r := &causes.Record{
		Revision: revision, Time: start.Add(time.Duration(revision) * time.Millisecond), Verb: "create", Effect: causes.Created, Actor: actor,
		Object: causes.Object{Resource: resource, Namespace: "shop", Name: "web"}, UID: "uid-" + resource, Because: because.Of(because_...),
	}
	if len(because_) == 0 {
		r.Request = fmt.Sprint("request-", revision)
	}
	return r
}

func rollout() []*causes.Record {
	account := "system:serviceaccount:kube-system:"
	root := record(10, "deployments", "jane")
	root.Trace = client
	return []*causes.Record{
		root, record(12, "replicasets", account+"deployment-controller", 10), record(13, "pods", account+"replicaset-controller", 12),
		record(14, "pods", "system:kube-scheduler", 13, 11), record(15, "pods", "system:node:n1", 14),
		record(16, "configmaps", "system:kube-x"), // because of nothing that is known
	}
}

func exporterTo(t *testing.T, collector *tracetest.Collector, perMillion int, backward Backward) *Exporter {
	t.Helper()
	config, err := trace.Load(collector.Config(t, perMillion))
	if err != nil {
		t.Fatal(err)
	}
	e := New(Options{Uploader: trace.NewUploader(config, trace.Options{}), PerMillion: int32(perMillion), Instance: "a", Log: slog.New(slog.DiscardHandler)})
	e.Start(backward)
	return e
}

func nothing(context.Context, int64) ([]causes.Record, error) { return nil, errors.New("nothing") }

func named(spans []tracetest.Span, service, name string) *tracetest.Span {
	i := slices.IndexFunc(spans, func(s tracetest.Span) bool { return s.Service == service && s.Name == name })
	if i < 0 {
		return nil
	}
	return &spans[i]
}

// A collector receives one trace for a change, over all makers.
func TestAChangeIsOneTrace(t *testing.T) {
	collector := tracetest.Listen(t)
	e := exporterTo(t, collector, 1_000_000, nothing)
	for _, r := range rollout() {
		e.Append(r)
	}
	e.Close()
	spans := collector.Spans()
	if len(spans) != 5 || e.exported.Load() != 5 || e.unrelated.Load() != 1 {
		t.Fatalf("%d spans, exported %d, unrelated %d", len(spans), e.exported.Load(), e.unrelated.Load())
	}
	parent, in := "", ""
	for _, want := range [][2]string{
		{"user", "create deployments"}, {"deployment-controller", "create replicasets"}, {"replicaset-controller", "create pods"},
		{"kube-scheduler", "create pods"}, {"node-agent", "create pods"},
	} {
		s := named(spans, want[0], want[1])
		if s == nil || s.Parent() != parent || in != "" && s.Trace() != in || s.EndTimeUnixNano < s.StartTimeUnixNano {
			t.Fatalf("%v: %+v, wanted the parent %s", want, s, parent)
		}
		parent, in = s.ID(), s.Trace()
	}
	root := named(spans, "user", "create deployments")
	if len(root.Links) != 1 || fmt.Sprintf("%x-%x", root.Links[0].TraceId, root.Links[0].SpanId) != client[3:52] {
		t.Errorf("the root is not linked to the request: %+v", root.Links)
	}
}

// Another server wrote the change: its log says which trace it is.
func TestATraceGoesOnAtAnotherServer(t *testing.T) {
	collector := tracetest.Listen(t)
	all := rollout()
	other := exporterTo(t, collector, 1_000_000, nothing)
	other.Append(all[0])
	other.Close()
	asked := 0
	here := exporterTo(t, collector, 1_000_000, func(context.Context, int64) ([]causes.Record, error) {
		if asked++; asked == 1 {
			return nil, nil // it has not recorded it yet
		}
		return []causes.Record{*all[0]}, nil
	})
	here.Append(all[1])
	here.Append(record(20, "events", "system:kube-x", 10))
	here.Close()
	spans := collector.Spans()
	a, b := named(spans, "user", "create deployments"), named(spans, "deployment-controller", "create replicasets")
	if a == nil || b == nil || b.Trace() != a.Trace() || b.Parent() != a.ID() || asked != 2 {
		t.Errorf("%+v %+v, asked %d times", a, b, asked)
	}
}

func TestChangesAreSampledAsRequests(t *testing.T) {
	collector := tracetest.Listen(t)
	e := exporterTo(t, collector, 0, nothing)
	for _, r := range rollout() {
		e.Append(r)
	}
	unchosen := record(30, "deployments", "jane")
	e.Append(unchosen)
	e.Append(record(31, "replicasets", "system:kube-x", 30))
	e.Close()
	// The client has chosen the first change for its own trace.
	if n := len(collector.Spans()); n != 5 || e.unsampled.Load() != 2 {
		t.Errorf("%d spans, %d unsampled", n, e.unsampled.Load())
	}
}

// blocked is a collector that does not answer.
type blocked struct{ entered, leave chan struct{} }

func (blocked) Start(context.Context) error { return nil }
func (blocked) Stop(context.Context) error  { return nil }
func (b blocked) UploadTraces(context.Context, []*tracev1.ResourceSpans) error {
	select {
	case b.entered <- struct{}{}:
	default:
	}
	<-b.leave
	return errors.New("no answer")
}

func TestWritesDoNotWaitForACollector(t *testing.T) {
	b := blocked{make(chan struct{}, 1), make(chan struct{})}
	e := New(Options{Uploader: b, PerMillion: 1_000_000, Log: slog.New(slog.DiscardHandler)})
	e.Start(nothing)
	e.Append(record(10, "deployments", "jane"))
	<-b.entered
	for i := range queueRecords + 100 {
		e.Append(record(int64(20+i), "deployments", "jane"))
	}
	if e.dropped.Load() != 100 {
		t.Errorf("%d dropped", e.dropped.Load())
	}
	close(b.leave)
	e.Close()
	if e.failed.Load() != 1+queueRecords {
		t.Errorf("%d failed", e.failed.Load())
	}
}

// The file and the collector have the same IDs, so that a viewer shows them as one.
func TestAFileHasTheIDsOfTheCollector(t *testing.T) {
	collector := tracetest.Listen(t)
	e := exporterTo(t, collector, 1_000_000, nothing)
	answer := causes.Answer{}
	for _, r := range rollout()[:5] {
		e.Append(r)
		answer.Records = append(answer.Records, *r)
	}
	e.Close()
	var out bytes.Buffer
	if err := Write(&out, story.Build(answer, nil)); err != nil {
		t.Fatal(err)
	}
	var doc struct {
		ResourceSpans []struct {
			ScopeSpans []struct {
				Spans []struct{ TraceID, SpanID, ParentSpanID string }
			}
		}
	}
	if err := json.Unmarshal(out.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	ids := func(trace, span, parent string) string { return strings.Join([]string{trace, span, parent}, " ") }
	var file, sent []string
	for _, r := range doc.ResourceSpans {
		for _, s := range r.ScopeSpans[0].Spans {
			file = append(file, ids(s.TraceID, s.SpanID, s.ParentSpanID))
		}
	}
	for _, s := range collector.Spans() {
		sent = append(sent, ids(s.Trace(), s.ID(), s.Parent()))
	}
	slices.Sort(file)
	slices.Sort(sent)
	if !slices.Equal(file, sent) || len(file) != 5 {
		t.Errorf("the file has\n%s\nthe collector\n%s", strings.Join(file, "\n"), strings.Join(sent, "\n"))
	}
}

func FuzzParents(f *testing.F) {
	f.Add(client)
	f.Add("00-00000000000000000000000000000000-b7ad6b7169203331-01")
	f.Fuzz(func(t *testing.T, text string) {
		if in, span, _, ok := parseParent(text); ok && (in == traceID{} || span == spanID{}) {
			t.Errorf("%q", text)
		}
	})
}

// BenchmarkAppend reports the cost on the way of a write.
func BenchmarkAppend(b *testing.B) {
	e := New(Options{Log: slog.New(slog.DiscardHandler)})
	r := record(10, "deployments", "jane")
	b.ReportAllocs()
	for b.Loop() {
		e.Append(r)
		if len(e.queue) == cap(e.queue) {
			b.StopTimer()
			for len(e.queue) > 0 {
				<-e.queue
			}
			b.StartTimer()
		}
	}
}
