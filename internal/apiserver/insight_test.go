package apiserver

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/insight/because"
	"github.com/knarr-project/knarr/internal/insight/causes"
)

// userHeader authenticates requests as the user in a header; without one they are anonymous.
type userHeader struct{}

func (userHeader) Authenticate(r *http.Request) (auth.User, bool, error) {
	if name := r.Header.Get("Test-User"); name != "" {
		return auth.Component(name), true, nil
	}
	return auth.Anonymous(), true, nil
}

// noSecrets allows everything but to get Secrets.
type noSecrets struct{}

func (noSecrets) Authorize(_ context.Context, a auth.Attributes) (auth.Decision, string, error) {
	if a.Resource == "secrets" && a.Verb == "get" {
		return auth.NoOpinion, "", nil
	}
	return auth.Allow, "", nil
}

func tracedServer(t testing.TB, change ...func(*Config)) *Server {
	log, err := causes.Open(causes.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return newTestServer(t, append(change, func(c *Config) {
		c.Causes = log
		c.Security.Authenticator = userHeader{}
	})...)
}

func askInsight(t *testing.T, s *Server, path string) causes.Answer {
	t.Helper()
	code, _, body := do(t, s, "GET", path, "", "Test-User", "someone")
	var answer causes.Answer
	if err := json.Unmarshal([]byte(body), &answer); code != http.StatusOK || err != nil {
		t.Fatalf("%s: %d %s %v", path, code, body, err)
	}
	return answer
}

const configMaps = "/api/v1/namespaces/default/configmaps"

func TestWritesAndTheirCausesAreRecorded(t *testing.T) {
	s := tracedServer(t)
	body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"root"}}`
	if code, _, answer := do(t, s, "POST", configMaps+"?fieldManager=me", body, "Test-User", "someone", "Audit-ID", "a-1"); code != http.StatusCreated {
		t.Fatal(code, answer)
	}
	root := askInsight(t, s, "/insight/v1/changes?resource=configmaps&namespace=default&name=root").Records
	if len(root) != 1 || root[0].Actor != "someone" || root[0].Manager != "me" || root[0].Request != "a-1" || root[0].Verb != "create" ||
		root[0].Effect != causes.Created || root[0].UID == "" || !root[0].Begins() {
		t.Fatalf("%+v", root)
	}

	// A component of this process hands the cause on in the context.
	ctx := because.With(t.Context(), because.Of(root[0].Revision))
	made, err := client.Create(ctx, s.Client(auth.Component("system:kube-x")), configMap("child"))
	if err != nil {
		t.Fatal(err)
	}
	// A component of another process hands it on in a header; an anonymous one cannot.
	for i, header := range [][]string{{"Test-User", "far"}, {}} {
		body := strings.Replace(body, "root", []string{"far", "unknown"}[i], 1)
		do(t, s, "POST", configMaps, body, append(header, because.Header, made.ResourceVersion)...)
	}
	if err := client.Delete[*corev1.ConfigMap](ctx, s.Client(auth.Component("system:kube-x")), "default", "child", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	got := askInsight(t, s, "/insight/v1/trace?revision="+because.Of(root[0].Revision).String()).Records
	var story []string
	for _, r := range got {
		story = append(story, r.Name+" "+string(r.Effect))
	}
	if text := strings.Join(story, ", "); text != "root created, child created, far created, child removed" {
		t.Errorf("%s: %+v", text, got)
	}
	if back := askInsight(t, s, "/insight/v1/causes?revision="+because.Of(got[2].Revision).String()).Records; len(back) != 3 {
		t.Errorf("%+v", back)
	}
	if same := askInsight(t, s, "/insight/v1/changes?request=a-1").Records; len(same) != 1 || same[0] != root[0] {
		t.Errorf("%+v", same)
	}
}

func TestLeasesAndEventsAreNotRecorded(t *testing.T) {
	s := tracedServer(t)
	do(t, s, "POST", "/apis/coordination.k8s.io/v1/namespaces/default/leases", `{"metadata":{"name":"l"}}`, "Test-User", "someone")
	do(t, s, "POST", "/api/v1/namespaces/default/events", `{"metadata":{"name":"e"},"involvedObject":{"namespace":"default"}}`, "Test-User", "someone")
	for _, kind := range []string{"group=coordination.k8s.io&resource=leases&name=l", "resource=events&name=e"} {
		if got := askInsight(t, s, "/insight/v1/changes?namespace=default&"+kind); len(got.Records) > 0 {
			t.Errorf("%+v", got)
		}
	}
}

func TestCausesOfObjectsThatTheUserMayNotGetAreHidden(t *testing.T) {
	s := tracedServer(t, func(c *Config) { c.Security.Authorizer = noSecrets{} })
	do(t, s, "POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"s"}}`, "Test-User", "someone", "Audit-ID", "a-2")
	if got := askInsight(t, s, "/insight/v1/changes?request=a-2"); len(got.Records) != 0 || got.Hidden != 1 {
		t.Errorf("%+v", got)
	}
}

func TestWrongQuestionsAboutCausesAreRefused(t *testing.T) {
	s := tracedServer(t)
	for path, want := range map[string]int{
		"/insight/v1/changes": 400, "/insight/v1/trace": 400, "/insight/v1/trace?revision=x": 400, "/insight/v1/other": 404,
		"/insight/v1/trace?revision=" + strings.Repeat("1,", maxRoots) + "1": 400,
	} {
		if code, _, body := do(t, s, "GET", path, "", "Test-User", "someone"); code != want {
			t.Errorf("%.60s: %d %s", path, code, body)
		}
	}
	if code, _, body := do(t, newTestServer(t), "GET", "/insight/v1/trace?revision=1", ""); code != 503 || !strings.Contains(body, "causal-log-size") {
		t.Errorf("%d %s", code, body)
	}
}

// BenchmarkCreateWithCauses compares the CPU time of creates with the causal log to those without.
// It takes turns, so that both see the same load of the machine.
func BenchmarkCreateWithCauses(b *testing.B) {
	const turn = 500
	servers := []*Server{newTestServer(b), tracedServer(b)}
	cm := configMap("")
	cm.GenerateName = "cm-"
	ctx := because.With(b.Context(), because.Of(7))
	var used [2]time.Duration
	n := 0
	for ; b.Loop(); n++ {
		for i, s := range servers {
			c := s.Client(auth.Component("tester"))
			before := cpuTime(b)
			for range turn {
				if _, err := client.Create(ctx, c, cm); err != nil {
					b.Fatal(err)
				}
			}
			used[i] += cpuTime(b) - before
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(used[0].Nanoseconds())/float64(n*turn), "cpu-ns/create-off")
	b.ReportMetric(float64(used[1].Nanoseconds())/float64(n*turn), "cpu-ns/create-on")
}

// cpuTime is the CPU time that the process has used.
func cpuTime(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
