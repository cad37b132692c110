package trace_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/trace"
	"github.com/knarr-project/knarr/internal/trace/tracetest"
)

func TestConfigurationsAreAcceptedOrRefusedLikeUpstream(t *testing.T) {
	const head = "apiVersion: apiserver.config.k8s.io/"
	for name, tc := range map[string]struct{ text, want string }{
		"the newest version":    {head + "v1\nkind: TracingConfiguration\nendpoint: localhost:4317\nsamplingRatePerMillion: 100\n", ""},
		"the beta":              {head + "v1beta1\nkind: TracingConfiguration\n", ""},
		"the alpha":             {head + "v1alpha1\nkind: TracingConfiguration\n", ""},
		"a socket":              {head + "v1\nkind: TracingConfiguration\nendpoint: unix:///run/otel.sock\n", ""},
		"JSON":                  {`{"apiVersion":"apiserver.config.k8s.io/v1","kind":"TracingConfiguration"}`, ""},
		"nothing":               {"", ""}, // an empty configuration is valid
		"another kind":          {head + "v1\nkind: EncryptionConfiguration\n", "unable to decode tracing configuration data"},
		"an unknown version":    {head + "v2\nkind: TracingConfiguration\n", `no kind "TracingConfiguration" is registered`},
		"an unknown field":      {head + "v1\nkind: TracingConfiguration\nrate: 1\n", `unknown field "rate"`},
		"a field twice":         {head + "v1\nkind: TracingConfiguration\nendpoint: a\nendpoint: b\n", "already set in map"},
		"a rate below 0":        {head + "v1\nkind: TracingConfiguration\nsamplingRatePerMillion: -1\n", "samplingRatePerMillion: Invalid value: -1: sampling rate must be positive"},
		"a rate above all":      {head + "v1\nkind: TracingConfiguration\nsamplingRatePerMillion: 1000001\n", "must be less than or equal to one million"},
		"an endpoint over HTTP": {head + "v1\nkind: TracingConfiguration\nendpoint: http://localhost:4317\n", "unsupported scheme: http"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tracing")
			if err := os.WriteFile(path, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := trace.Load(path)
			if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
	if _, err := trace.Load(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a missing file was accepted")
	}
}

// open makes a Tracer that sends to c.
func open(t *testing.T, c *tracetest.Collector, perMillion int) *trace.Tracer {
	t.Helper()
	config, err := trace.Load(c.Config(t, perMillion))
	if err != nil {
		t.Fatal(err)
	}
	tracer, err := trace.Open(t.Context(), config, trace.Options{Service: "apiserver", Instance: "one"})
	if err != nil {
		t.Fatal(err)
	}
	return tracer
}

const (
	sampled   = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	unsampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	clients   = "0af7651916cd43dd8448eb211c80319c"
)

func TestSamplingDecisions(t *testing.T) {
	for name, tc := range map[string]struct {
		parent  string
		rate    int
		trusted bool
		spans   int
		trace   string // expected trace of the span
		links   int
	}{
		"none by default":                              {trusted: true},
		"all where all are to be":                      {rate: 1000000, spans: 1},
		"one whose trusted client records it":          {parent: sampled, trusted: true, spans: 1, trace: clients},
		"none whose trusted client does not record it": {parent: unsampled, rate: 1000000, trusted: true},
		"none for the decision of an untrusted client": {parent: sampled},
		"a link to the trace of an untrusted client":   {parent: sampled, rate: 1000000, spans: 1, links: 1},
		"an invalid header":                            {parent: "x", rate: 1000000, spans: 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := tracetest.Listen(t)
			tracer := open(t, c, tc.rate)
			r := httptest.NewRequest("GET", "https://server:6443/api/v1/pods?limit=1", nil)
			if tc.parent != "" {
				r.Header.Set("traceparent", tc.parent)
			}
			ctx, span := tracer.Serve(r.Context(), r, "GET /api/v1/pods", tc.trusted, time.Now(), trace.Text("audit-id", "a"))
			_, part := trace.Start(ctx, "List")
			if part.On() != span.On() {
				t.Errorf("the request is recorded: %v, its part: %v", span.On(), part.On())
			}
			part.End()
			span.Answered(http.StatusOK, 0, 10)
			if err := tracer.Close(); err != nil { // Close sends the remaining spans
				t.Fatal(err)
			}
			spans := c.Spans()
			if len(spans) != 2*tc.spans {
				t.Fatalf("got %d spans: %v", len(spans), spans)
			}
			if len(spans) == 0 {
				return
			}
			list, request := spans[0], spans[1]
			if list.Name != "List" || request.Name != "GET /api/v1/pods" || list.Parent() != request.ID() || list.Trace() != request.Trace() || request.Service != "apiserver" {
				t.Errorf("got %v", spans)
			}
			if (tc.trace != "" && request.Trace() != tc.trace) || tc.trace == "" && request.Trace() == clients || len(request.Links) != tc.links {
				t.Errorf("got the trace %s with %d links", request.Trace(), len(request.Links))
			}
			for key, want := range map[string]string{
				"http.request.method": "GET", "url.path": "/api/v1/pods", "http.target": "/api/v1/pods?limit=1", "url.scheme": "https", "server.address": "server", "server.port": "6443",
				"http.response.status_code": "200", "http.response.body.size": "10", "audit-id": "a", "network.peer.address": "192.0.2.1", "client.address": "192.0.2.1", "network.protocol.version": "1.1",
			} {
				if got := request.Attribute(key); got != want {
					t.Errorf("%s is %q, want %q", key, got, want)
				}
			}
		})
	}
}

func TestTheTraceIsPropagatedToOutgoingRequests(t *testing.T) {
	heard := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { heard <- r.Header.Get("traceparent") }))
	defer server.Close()
	ask := func(ctx context.Context) string {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Transport: trace.Transport(http.DefaultTransport)}
		response, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return <-heard
	}
	if got := ask(t.Context()); got != "" {
		t.Errorf("a request without a trace has %q", got)
	}
	if got := ask(trace.Received(t.Context(), http.Header{"Traceparent": {sampled}})); got != sampled {
		t.Errorf("without a tracer the trace is %q", got)
	}
	c := tracetest.Listen(t)
	tracer := open(t, c, 1000000)
	r := httptest.NewRequest("GET", "/", nil)
	ctx, span := tracer.Serve(r.Context(), r, "GET", false, time.Now())
	got := ask(ctx)
	span.Answered(http.StatusInternalServerError, 0, 0)
	if err := tracer.Close(); err != nil {
		t.Fatal(err)
	}
	spans := c.Spans()
	if len(spans) != 2 || got != "00-"+spans[0].Trace()+"-"+spans[0].ID()+"-01" || spans[0].Parent() != spans[1].ID() {
		t.Errorf("got %q of %v", got, spans)
	}
}

func TestCloseDoesNotWaitLongForTheCollector(t *testing.T) {
	c := &tracetest.Collector{Endpoint: "127.0.0.1:1"}
	tracer := open(t, c, 1000000)
	r := httptest.NewRequest("GET", "/", nil)
	_, span := tracer.Serve(r.Context(), r, "GET", false, time.Now())
	span.Answered(http.StatusOK, 0, 0)
	done := make(chan error, 1)
	go func() { done <- tracer.Close() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("it waits")
	}
}

type nullTransport struct{}

func (nullTransport) RoundTrip(*http.Request) (*http.Response, error) { return nil, nil }

// The server calls these functions for every request, traced or not.
func TestUnrecordedSpansDoNotAllocate(t *testing.T) {
	type key struct{}
	ctx := context.WithValue(context.WithValue(t.Context(), key{}, 1), key{}, 2)
	r := httptest.NewRequest("GET", "/", nil).WithContext(ctx)
	transport := trace.Transport(nullTransport{})
	var none *trace.Tracer
	if got := testing.AllocsPerRun(100, func() {
		ctx := trace.Received(ctx, r.Header)
		_, span := trace.Start(ctx, "Get")
		if span.On() {
			span.Set(trace.Text("a", "b"))
		}
		span.Stage("audit", time.Time{}, time.Time{})
		span.Answered(http.StatusOK, 1, 1)
		span.Failed(nil)
		span.End()
		_, _ = transport.RoundTrip(r)
		_ = none.DialOptions()
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}
