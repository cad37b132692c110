package apiserver

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/apiserver/encryption"
	"github.com/knarr-project/knarr/internal/insight/causes"
	"github.com/knarr-project/knarr/internal/insight/history"
	"github.com/knarr-project/knarr/internal/insight/timeline"
	"github.com/knarr-project/knarr/internal/store"
)

// historyServer returns a server that records the history of its objects in a folder.
func historyServer(t testing.TB, change ...func(*Config)) (s *Server, dir string) {
	dir = t.TempDir()
	log, err := history.Open(history.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	known, err := causes.Open(causes.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	s = newTestServer(t, append(change, func(c *Config) {
		c.History, c.Causes = log, known
		c.Security.Authenticator = userHeader{}
	})...)
	s.insight.past.Run(t.Context())
	return s, dir
}

func askTimeline(t *testing.T, s *Server, query string) timeline.Answer {
	t.Helper()
	code, _, body := do(t, s, "GET", "/insight/v1/timeline?"+query, "", "Test-User", "someone")
	var answer timeline.Answer
	if err := json.Unmarshal([]byte(body), &answer); code != http.StatusOK || err != nil {
		t.Fatalf("%s: %d %s %v", query, code, body, err)
	}
	return answer
}

// writeAsSomeone sends a write as someone.
func writeAsSomeone(t *testing.T, s *Server, method, path, body string, headers ...string) {
	t.Helper()
	if code, _, answer := do(t, s, method, path, body, append(headers, "Test-User", "someone")...); code >= 300 {
		t.Fatalf("%s %s: %d %s", method, path, code, answer)
	}
}

const mergePatch = "application/merge-patch+json"

// now returns a time after all writes before it, and before all writes after it.
func pause() string {
	time.Sleep(2 * time.Millisecond)
	at := time.Now().UTC().Format(time.RFC3339Nano)
	time.Sleep(2 * time.Millisecond)
	return at
}

func TestTimelineShowsChangesWithUsersAndFields(t *testing.T) {
	s, _ := historyServer(t)
	writeAsSomeone(t, s, "POST", configMaps+"?fieldManager=me", `{"metadata":{"name":"a"},"data":{"k":"1"}}`)
	writeAsSomeone(t, s, "PATCH", configMaps+"/a?fieldManager=me", `{"data":{"k":"2","l":"x"}}`, "Content-Type", mergePatch)
	writeAsSomeone(t, s, "DELETE", configMaps+"/a", "")

	answer := askTimeline(t, s, "resource=configmaps&namespace=default&name=a")
	if len(answer.Items) != 3 {
		t.Fatalf("%+v", answer)
	}
	removed, changed, created := answer.Items[0], answer.Items[1], answer.Items[2]
	if removed.Effect != "removed" || changed.Effect != "changed" || created.Effect != "created" {
		t.Fatalf("%+v", answer.Items)
	}
	if changed.Actor != "someone" || changed.Manager != "me" || changed.Version != "v1" || changed.UID == "" || created.UID != removed.UID {
		t.Errorf("%+v", changed)
	}
	want := []timeline.Change{{Path: "data.k", From: "1", To: "2"}, {Path: "data.l", To: "x"}}
	if len(changed.Changes) != 2 || changed.Changes[0] != want[0] || changed.Changes[1] != want[1] {
		t.Errorf("%+v", changed.Changes)
	}
	if created.Revision >= changed.Revision || changed.Revision >= removed.Revision || answer.Reaches.IsZero() {
		t.Errorf("%+v", answer)
	}
	var paged []int64
	for next := ""; ; {
		page := askTimeline(t, s, "resource=configmaps&namespace=default&name=a&limit=1&continue="+next)
		for _, item := range page.Items {
			paged = append(paged, item.Revision)
		}
		if next = page.Continue; next == "" {
			break
		}
	}
	if len(paged) != 3 || paged[0] != removed.Revision || paged[2] != created.Revision {
		t.Errorf("pages: %v", paged)
	}
}

func TestObjectsAreReadAsTheyWere(t *testing.T) {
	s, _ := historyServer(t)
	writeAsSomeone(t, s, "POST", configMaps, `{"metadata":{"name":"old","labels":{"app":"a"}},"data":{"k":"1"}}`)
	writeAsSomeone(t, s, "POST", configMaps, `{"metadata":{"name":"gone","labels":{"app":"a"}}}`)
	then := pause()
	writeAsSomeone(t, s, "PATCH", configMaps+"/old", `{"metadata":{"labels":{"app":"b"}},"data":{"k":"2"}}`, "Content-Type", mergePatch)
	writeAsSomeone(t, s, "DELETE", configMaps+"/gone", "")
	writeAsSomeone(t, s, "POST", configMaps, `{"metadata":{"name":"new"}}`)

	code, header, body := do(t, s, "GET", configMaps+"/old", "", "Test-User", "someone", "Knarr-At", then)
	if code != http.StatusOK || !strings.Contains(body, `"k":"1"`) || header.Get("Knarr-At") == "" {
		t.Fatalf("%d %v %s", code, header, body)
	}
	code, _, body = do(t, s, "GET", configMaps+"?labelSelector=app%3Da&limit=1", "", "Test-User", "someone", "Knarr-At", then)
	if code != http.StatusOK || !strings.Contains(body, `"name":"old"`) || !strings.Contains(body, `"name":"gone"`) || strings.Contains(body, `"name":"new"`) {
		t.Fatalf("%d %s", code, body)
	}
	if code, _, body = do(t, s, "GET", configMaps+"/new", "", "Test-User", "someone", "Knarr-At", then); code != http.StatusNotFound {
		t.Errorf("an object that did not exist: %d %s", code, body)
	}
	if code, _, body = do(t, s, "GET", configMaps, "", "Test-User", "someone", "Knarr-At", "2001-01-01T00:00:00Z"); code != http.StatusGone || !strings.Contains(body, "oldest possible time") {
		t.Errorf("before the log: %d %s", code, body)
	}
	for name, write := range map[string]string{"POST": configMaps, "DELETE": configMaps + "/old"} {
		if code, _, body = do(t, s, name, write, `{"metadata":{"name":"x"}}`, "Test-User", "someone", "Knarr-At", then); code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
	if code, _, body = do(t, s, "GET", configMaps+"?watch=true", "", "Test-User", "someone", "Knarr-At", then); code != http.StatusBadRequest {
		t.Errorf("watch: %d %s", code, body)
	}

	code, _, body = do(t, s, "GET", "/insight/v1/diff?namespace=default&resource=configmaps&since="+url.QueryEscape(then), "", "Test-User", "someone")
	var net timeline.NetAnswer
	if err := json.Unmarshal([]byte(body), &net); code != http.StatusOK || err != nil {
		t.Fatal(code, body, err)
	}
	effects := map[string]string{}
	for _, item := range net.Items {
		effects[item.Name] = item.Effect
	}
	if len(effects) != 3 || effects["old"] != "changed" || effects["gone"] != "removed" || effects["new"] != "created" {
		t.Errorf("%v", effects)
	}
}

func TestSecretsAreRecordedWithoutValues(t *testing.T) {
	s, dir := historyServer(t)
	const secrets = "/api/v1/namespaces/default/secrets"
	apply := `,"annotations":{"kubectl.kubernetes.io/last-applied-configuration":"aHVudGVyMg hunter2"}`
	writeAsSomeone(t, s, "POST", secrets, `{"metadata":{"name":"a"`+apply+`},"stringData":{"password":"hunter2","user":"u"}}`)
	then := pause()
	writeAsSomeone(t, s, "PATCH", secrets+"/a", `{"stringData":{"password":"hunter3"}}`, "Content-Type", mergePatch)
	writeAsSomeone(t, s, "DELETE", secrets+"/a", "")

	answer := askTimeline(t, s, "resource=secrets&namespace=default")
	if len(answer.Items) != 3 || len(answer.Items[1].Changes) == 0 {
		t.Fatalf("%+v", answer)
	}
	last := answer.Items[1].Changes[len(answer.Items[1].Changes)-1]
	if last.Path != "data.password" || !last.Hidden || last.From != nil {
		t.Errorf("%+v", answer.Items[1].Changes)
	}
	code, header, body := do(t, s, "GET", secrets+"/a", "", "Test-User", "someone", "Knarr-At", then)
	if code != http.StatusOK || strings.Contains(body, "aHVudGVy") || !strings.Contains(body, `"password":""`) || header.Get("Warning") == "" {
		t.Errorf("%d %v %s", code, header, body)
	}
	s.Close()
	log, err := history.Open(history.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	err = log.Each(t.Context(), history.Query{}, func(c history.Change) bool {
		if strings.Contains(string(c.Before), "hunter") || strings.Contains(string(c.Before), "aHVudGVy") {
			t.Errorf("%s has values: %q", c.Key, c.Before)
		}
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, file := range files {
		if data, _ := os.ReadFile(file); strings.Contains(string(data), "hunter") {
			t.Error("the file has values", file)
		}
	}
}

func TestHistoryShowsOnlyWhatTheUserMayGet(t *testing.T) {
	s, _ := historyServer(t, func(c *Config) { c.Security.Authorizer = noSecrets{} })
	writeAsSomeone(t, s, "POST", "/api/v1/namespaces/default/secrets", `{"metadata":{"name":"a"}}`)
	writeAsSomeone(t, s, "POST", configMaps, `{"metadata":{"name":"a"}}`)
	answer := askTimeline(t, s, "namespace=default&since=1h")
	for _, item := range answer.Items {
		if item.Resource == "secrets" {
			t.Errorf("%+v", item)
		}
	}
	if answer.Hidden == 0 || len(answer.Items) == 0 {
		t.Errorf("%+v", answer)
	}
}

func TestEncryptedObjectsStayEncryptedInTheHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config")
	config := "kind: EncryptionConfiguration\napiVersion: apiserver.config.k8s.io/v1\nresources:\n- resources: [configmaps]\n  providers:\n" +
		"  - aesgcm: {keys: [{name: key1, secret: c2VjcmV0IGlzIHNlY3VyZQ==}]}\n"
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s, dir := historyServer(t, func(c *Config) {
		sealed, err := encryption.Wrap(t.Context(), c.Store, path, false, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		c.Store = sealed
		t.Cleanup(func() { _ = sealed.Close() })
	})
	writeAsSomeone(t, s, "POST", configMaps, `{"metadata":{"name":"a"},"data":{"k":"plainly visible"}}`)
	then := pause()
	writeAsSomeone(t, s, "PATCH", configMaps+"/a", `{"data":{"k":"2"}}`, "Content-Type", mergePatch)
	code, _, body := do(t, s, "GET", configMaps+"/a", "", "Test-User", "someone", "Knarr-At", then)
	if code != http.StatusOK || !strings.Contains(body, "plainly visible") {
		t.Errorf("%d %s", code, body)
	}
	if items := askTimeline(t, s, "resource=configmaps&namespace=default").Items; len(items) != 2 || len(items[0].Changes) != 1 || items[0].Changes[0].From != "plainly visible" {
		t.Errorf("%+v", items)
	}
	s.Close()
	log, err := history.Open(history.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	states := 0
	err = log.Each(t.Context(), history.Query{Kind: "/registry/configmaps"}, func(c history.Change) bool {
		if c.Before != nil {
			states++
		}
		if strings.Contains(string(c.Before), "plainly") {
			t.Errorf("%q", c.Before)
		}
		return true
	})
	if err != nil || states != 1 {
		t.Error(states, err)
	}
}

// The history has the writes of all servers, and each causal log those of its own server.
func TestTimelineNamesUsersOfOtherServers(t *testing.T) {
	peer := tracedServer(t)
	peer.access.current.Store(&Security{Authenticator: forwarded{}, Authorizer: noSecrets{}})
	front := httptest.NewServer(peer.Handler())
	defer front.Close()
	dead := httptest.NewServer(nil)
	dead.Close()
	s, _ := historyServer(t, func(c *Config) {
		c.Peers = func(context.Context) ([]Peer, error) {
			return []Peer{{Name: "b", URL: front.URL}, {Name: "c", URL: dead.URL}}, nil
		}
		c.PeerHTTP = func() *http.Client { return &http.Client{Transport: &http.Transport{}} }
	})
	writeAsSomeone(t, s, "POST", configMaps, `{"metadata":{"name":"a"},"data":{"k":"1"}}`)
	// The other server removes it.
	removed, err := s.shared.Home.Store.Commit(t.Context(), nil, store.Op{Key: "/registry/configmaps/default/a", Delete: true})
	if err != nil {
		t.Fatal(err)
	}
	peer.cfg.Causes.Append(&causes.Record{
		Revision: removed.Revision, Time: s.clock(), Object: causes.Object{Resource: "configmaps", Namespace: "default", Name: "a"},
		Verb: "delete", Effect: causes.Removed, Actor: "elsewhere",
	})
	answer := askTimeline(t, s, "resource=configmaps&namespace=default&name=a")
	if len(answer.Items) != 2 || answer.Items[0].Actor != "elsewhere" || answer.Items[1].Actor != "someone" {
		t.Errorf("%+v", answer.Items)
	}
	if len(answer.Missing) != 1 || answer.Missing["c ("+dead.URL+")"] == "" {
		t.Errorf("missing %v", answer.Missing)
	}
}
