package audit

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/knarr-project/knarr/internal/auth"
)

const policyText = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  users: ["system:kube-proxy"]
  verbs: [watch]
- level: None
  nonResourceURLs: ["/healthz*", "/version"]
- level: Request
  userGroups: [ops]
  resources: [{group: "", resources: [pods/log, "*/status"]}]
- level: RequestResponse
  resources: [{group: "", resources: [configmaps], resourceNames: [ours]}, {group: apps}]
  namespaces: [default]
  omitStages: [ResponseStarted]
  omitManagedFields: true
- level: Metadata
  resources: [{group: "", resources: [secrets]}]
- level: Request
  resources: [{group: "*", resources: [widgets]}]
  namespaces: [default]
`

func TestFirstMatchingPolicyRuleDecides(t *testing.T) {
	policy, err := ParsePolicy([]byte(policyText))
	if err != nil {
		t.Fatal(err)
	}
	user := func(name string, groups ...string) auth.User { return auth.User{Name: name, Groups: groups} }
	for name, tc := range map[string]struct {
		a    auth.Attributes
		want auditv1.Level
	}{
		"a watch of the proxy":         {auth.Attributes{User: user("system:kube-proxy"), Verb: "watch", Resource: "secrets"}, auditv1.LevelNone},
		"another one's watch":          {auth.Attributes{User: user("alice"), Verb: "watch", Resource: "secrets"}, auditv1.LevelMetadata},
		"a path below a pattern":       {auth.Attributes{Path: "/healthz/etcd"}, auditv1.LevelNone},
		"another path":                 {auth.Attributes{Path: "/metrics"}, auditv1.LevelNone},
		"a subresource":                {auth.Attributes{User: user("bob", "ops"), Resource: "pods", Subresource: "log"}, auditv1.LevelRequest},
		"the resource itself":          {auth.Attributes{User: user("bob", "ops"), Resource: "pods"}, auditv1.LevelNone},
		"a subresource of every kind":  {auth.Attributes{User: user("bob", "ops"), Resource: "nodes", Subresource: "status"}, auditv1.LevelRequest},
		"by somebody else":             {auth.Attributes{User: user("bob"), Resource: "nodes", Subresource: "status"}, auditv1.LevelNone},
		"an object by its name":        {auth.Attributes{Resource: "configmaps", Name: "ours", Namespace: "default"}, auditv1.LevelRequestResponse},
		"another object":               {auth.Attributes{Resource: "configmaps", Name: "theirs", Namespace: "default"}, auditv1.LevelNone},
		"a whole group":                {auth.Attributes{Group: "apps", Resource: "deployments", Namespace: "default"}, auditv1.LevelRequestResponse},
		"the group in another place":   {auth.Attributes{Group: "apps", Resource: "deployments", Namespace: "other"}, auditv1.LevelNone},
		"a kind of whatever group":     {auth.Attributes{Group: "example.com", Resource: "widgets", Namespace: "default"}, auditv1.LevelRequest},
		"of the core group, too":       {auth.Attributes{Resource: "widgets", Namespace: "default"}, auditv1.LevelRequest},
		"another kind of any group":    {auth.Attributes{Group: "example.com", Resource: "gadgets", Namespace: "default"}, auditv1.LevelNone},
		"a rule for resources, a path": {auth.Attributes{User: user("x", "ops"), Path: "/x"}, auditv1.LevelNone},
	} {
		t.Run(name, func(t *testing.T) {
			d := policy.decide(&tc.a)
			if d.level != tc.want {
				t.Errorf("got %s, want %s", d.level, tc.want)
			}
			if d.level == auditv1.LevelRequestResponse && (len(d.omit) != 2 || !d.omitManagedFields) {
				t.Errorf("got %+v", d)
			}
		})
	}
}

func TestInvalidPoliciesAreRefused(t *testing.T) {
	const head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"
	for text, want := range map[string]string{
		head:                         "no rules",
		head + "rules: [{level: X}]": "rules[0].level",
		head + "rules: [{level: Metadata, nonResourceURLs: ['/a*b']}]": "nonResourceURLs",
		"apiVersion: audit.k8s.io/v1\nkind: Event\n":                   "expected Policy",
	} {
		if _, err := ParsePolicy([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

func TestUnknownPolicyFieldsAreReportedAndIgnored(t *testing.T) {
	const head = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"
	for text, want := range map[string]string{
		head + "rules: [{level: Metadata}]\nrulez: []":           `unknown field "rulez"`,
		head + "rules: [{level: Metadata, foo: 1}]":              `unknown field "rules[0].foo"`,
		head + "rules:\n- level: None\n  level: Metadata\n":      `key "level" already set`,
		head + "rules: [{level: Metadata, omitStages: [Panic]}]": "",
	} {
		policy, err := ParsePolicy([]byte(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if (policy.StrictErr != nil) != (want != "") || want != "" && !strings.Contains(policy.StrictErr.Error(), want) {
			t.Errorf("%q: told %v, want %s", text, policy.StrictErr, want)
		}
		if got := policy.decide(&auth.Attributes{Verb: "get"}).level; got != auditv1.LevelMetadata {
			t.Errorf("%q: level %s", text, got)
		}
	}
}

func TestManagedFieldsAreRemovedFromObjectsListsAndTables(t *testing.T) {
	const with, without = `{"metadata":{"managedFields":[{}],"name":"a"}}`, `{"metadata":{"name":"a"}}`
	for sent, want := range map[string]string{
		with: without, `{"items":[` + with + `]}`: `{"items":[` + without + `]}`,
		`{"rows":[{"cells":["a"],"object":` + with + `},{"object":null},3]}`: `{"rows":[{"cells":["a"],"object":` + without + `},{"object":null},3]}`,
	} {
		if got := string(withoutManagedFields([]byte(sent))); got != want {
			t.Errorf("%s became %s", sent, got)
		}
	}
}

func FuzzParsePolicy(f *testing.F) {
	f.Add([]byte(policyText))
	f.Fuzz(func(t *testing.T, data []byte) {
		if policy, err := ParsePolicy(data); err == nil {
			policy.decide(&auth.Attributes{Verb: "get", Resource: "pods"})
		}
	})
}

func newLog(t *testing.T, sinks ...Sink) *Log {
	t.Helper()
	policy, err := ParsePolicy([]byte(policyText))
	if err != nil {
		t.Fatal(err)
	}
	var to []Destination
	for _, sink := range sinks {
		to = append(to, Destination{Sink: sink, Name: "log"})
	}
	return &Log{Policy: policy, Sinks: to, Metrics: NewMetrics(), Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Now: func() time.Time { return time.Unix(1, 0) }}
}

func TestFileHasOneLinePerEvent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	sink, err := OpenFile(File{Path: path, Format: "json"})
	if err != nil {
		t.Fatal(err)
	}
	log := newLog(t, sink)
	r := httptest.NewRequest("PATCH", "/api/v1/namespaces/default/configmaps/ours?x=1", nil)
	r.RemoteAddr = "192.0.2.1:1234"
	r.Header.Set("X-Forwarded-For", "10.0.0.1, junk")
	rec := log.Begin("id", &auth.Attributes{User: auth.User{Name: "alice"}, Verb: "patch", Resource: "configmaps", Name: "ours", Namespace: "default", Version: "v1"}, r)
	rec.Stage(auditv1.StageRequestReceived, 0)
	rec.Annotate("a", "1")
	rec.Annotate("a", "2")
	rec.Request([]byte(`{"metadata":{"managedFields":[{}],"name":"ours"}}`))
	rec.Response([]byte(`{"items":[{"metadata":{"managedFields":[{}],"generation":9007199254740993}}]}`))
	rec.Stage(auditv1.StageResponseComplete, 200)
	rec.Stage(auditv1.StagePanic, 500)
	log.Close()
	data, err := os.ReadFile(path)
	if err != nil || strings.Count(string(data), "\n") != 1 {
		t.Fatalf("%q, %v", data, err)
	}
	for _, want := range []string{`{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"RequestResponse","auditID":"id","stage":"ResponseComplete"`,
		`"requestURI":"/api/v1/namespaces/default/configmaps/ours?x=1"`, `"sourceIPs":["10.0.0.1","192.0.2.1"]`, `"responseStatus":{"metadata":{},"code":200}`,
		`"requestObject":{"metadata":{"name":"ours"}}`, `"responseObject":{"items":[{"metadata":{"generation":9007199254740993}}]}`, `"annotations":{"a":"1"}`,
		`"objectRef":{"resource":"configmaps","namespace":"default","name":"ours","apiVersion":"v1"}`} {
		if !strings.Contains(string(data), want) {
			t.Errorf("lacks %s: %s", want, data)
		}
	}
}

func TestNilRecordDoesNothing(t *testing.T) {
	var log *Log
	rec := log.Begin("", nil, nil)
	rec.Stage(auditv1.StageResponseComplete, 200)
	rec.Annotate("a", "b")
	rec.Request(nil)
	rec.Response(nil)
	rec.Status(nil)
	rec.Impersonate(auth.User{}, "")
	rec.Identify(&metav1.ObjectMeta{})
	log.Close()
}

func TestWebhookGetsBatchesAndIsRetried(t *testing.T) {
	var mu sync.Mutex
	var sizes []int
	fail := true
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if fail {
			fail = false
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		if r.Header.Get("Accept") != "application/json, */*" || r.URL.RequestURI() != "/hook?timeout=30s" {
			t.Errorf("%s, Accept: %s", r.URL, r.Header.Get("Accept"))
		}
		body, _ := io.ReadAll(r.Body)
		var list auditv1.EventList
		if err := json.Unmarshal(body, &list); err != nil || list.Kind != "EventList" {
			t.Errorf("%s: %v", body, err)
		}
		sizes = append(sizes, len(list.Items))
	}))
	defer server.Close()
	kubeconfig := filepath.Join(t.TempDir(), "config")
	text := "apiVersion: v1\nkind: Config\ncurrent-context: a\ncontexts: [{name: a, context: {cluster: a}}]\nclusters: [{name: a, cluster: {server: '" + server.URL + "/hook'}}]\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var dialed atomic.Int64
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		dialed.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	sink, err := OpenWebhook(kubeconfig, dial, time.Millisecond, &Batching{Buffer: 100, MaxSize: 2, MaxWait: time.Hour}, func(int, error) {})
	if err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if err := sink.Put(&auditv1.Event{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, n := range sizes {
		if sum += n; n > 2 {
			t.Errorf("a batch of %d", n)
		}
	}
	if dialed.Load() == 0 {
		t.Error("the webhook is connected to in another way than the server says")
	}
	if sum != 5 {
		t.Errorf("%d events arrived: %v", sum, sizes)
	}
}

// kept records events.
type kept struct{ events []*auditv1.Event }

func (k *kept) Put(event *auditv1.Event) error { k.events = append(k.events, event); return nil }
func (k *kept) Close() error                   { return nil }

func TestLargeEventsAreTruncated(t *testing.T) {
	object := &runtime.Unknown{Raw: []byte(`"` + strings.Repeat("x", 500) + `"`)}
	for name, tc := range map[string]struct {
		event             auditv1.Event
		truncated, refuse bool
	}{
		"a small event passes as it is":                   {event: auditv1.Event{Verb: "get"}},
		"a large object is left out":                      {event: auditv1.Event{Verb: "create", RequestObject: object, ResponseObject: object}, truncated: true},
		"an event that is large without it is not stored": {event: auditv1.Event{RequestURI: strings.Repeat("u", 500), RequestObject: object}, refuse: true},
	} {
		t.Run(name, func(t *testing.T) {
			to := &kept{}
			err := Truncating(to, 400).Put(&tc.event)
			if (err != nil) != tc.refuse {
				t.Fatalf("got %v", err)
			}
			if tc.refuse {
				return
			}
			got := to.events[0]
			if marked := got.Annotations["audit.k8s.io/truncated"] == "true"; marked != tc.truncated || tc.truncated && (got.RequestObject != nil || got.ResponseObject != nil) {
				t.Errorf("got %+v", got)
			}
			if tc.truncated && tc.event.RequestObject == nil {
				t.Error("the event of other destinations was changed")
			}
		})
	}
}

func TestLongUserAgentsAreTruncated(t *testing.T) {
	to := &kept{}
	for length, want := range map[int]string{1024: strings.Repeat("x", 1024), 1025: strings.Repeat("x", 1024) + "...TRUNCATED"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("User-Agent", strings.Repeat("x", length))
		policy, err := ParsePolicy([]byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]"))
		if err != nil {
			t.Fatal(err)
		}
		log := &Log{Policy: policy, Sinks: []Destination{{Sink: to}}, Now: time.Now}
		log.Begin("id", &auth.Attributes{Verb: "get", Path: "/"}, r).Stage(auditv1.StageResponseComplete, 200)
		if got := to.events[len(to.events)-1].UserAgent; got != want {
			t.Errorf("%d letters became %d", length, len(got))
		}
	}
}

func TestBatchesAreSplitBySize(t *testing.T) {
	var sizes []int
	b := newBatches(Batching{Buffer: 10, MaxSize: 10, MaxWait: time.Hour, MaxBytes: 2*sizeOf(&auditv1.Event{Verb: "get"}) + 1}, func(int, error) {},
		func(_ context.Context, events []*auditv1.Event) error { sizes = append(sizes, len(events)); return nil })
	for range 5 {
		if err := b.Put(&auditv1.Event{Verb: "get"}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(); err != nil || !slices.Equal(sizes, []int{2, 2, 1}) {
		t.Errorf("got batches of %v, %v", sizes, err)
	}
}

func TestCloseWritesEveryAcceptedEvent(t *testing.T) {
	taken := 0
	b := newBatches(Batching{Buffer: 1000, MaxSize: 10}, func(int, error) {}, func(_ context.Context, events []*auditv1.Event) error { taken += len(events); return nil })
	var accepted atomic.Int64
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for range 100 {
				if b.Put(&auditv1.Event{}) == nil {
					accepted.Add(1)
				}
			}
		})
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	writers.Wait()
	if int64(taken) != accepted.Load() {
		t.Errorf("%d events were accepted, %d written", accepted.Load(), taken)
	}
	if err := b.Put(&auditv1.Event{}); err == nil {
		t.Error("an event after the end was accepted")
	}
}

// fussy is a Sink that fails for some events.
type fussy struct{ written int }

func (f *fussy) Put(event *auditv1.Event) error {
	if event.Verb == "delete" {
		return errors.New("not that one")
	}
	f.written++
	return nil
}

func (f *fussy) Close() error { return nil }

func TestOnlyFailedEventsAreReportedAsLost(t *testing.T) {
	under, lost := &fussy{}, 0
	b := Batched(under, Batching{Buffer: 10, MaxSize: 10, MaxWait: time.Hour}, func(events int, _ error) { lost += events })
	for _, verb := range []string{"get", "delete", "list"} {
		if err := b.Put(&auditv1.Event{Verb: verb}); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if under.written != 2 || lost != 1 {
		t.Errorf("%d were written, %d are lost; want 2 and 1", under.written, lost)
	}
}

func TestOnlyStrictDestinationsRefuseRequests(t *testing.T) {
	broken := newBatches(Batching{Buffer: 1}, func(int, error) {}, nil)
	if err := broken.Close(); err != nil {
		t.Fatal(err)
	}
	for strict, want := range map[bool]error{true: ErrNotStored, false: nil} {
		log := newLog(t, broken)
		log.Sinks[0].Strict = strict
		log.Policy.spec.OmitStages = nil
		rec := log.Begin("id", &auth.Attributes{Verb: "get", Resource: "secrets"}, httptest.NewRequest("GET", "/api/v1/secrets", nil))
		if err := rec.Received(); !errors.Is(err, want) {
			t.Errorf("strict %v: got %v", strict, err)
		}
	}
}

func TestWebhookIsRetriedAfterAnyError(t *testing.T) {
	for _, code := range []int{302, 400, 404, 429, 500} {
		var asked atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if asked.Add(1) == 1 {
				w.WriteHeader(code)
			}
		}))
		w := &webhook{url: server.URL, http: server.Client(), backoff: time.Millisecond}
		if err := w.Put(&auditv1.Event{}); err != nil || asked.Load() != 2 {
			t.Errorf("after %d it is asked %d times: %v", code, asked.Load(), err)
		}
		server.Close()
	}
}
