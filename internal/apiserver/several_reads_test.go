package apiserver

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/admission/policy"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/auth/rbac"
	"github.com/knarr-project/knarr/internal/client"
)

// each calls fn for ordered pairs of servers: the one that is written to and the one that is read.
func each(servers []*Server, fn func(from, to *Server, name string)) {
	for i, from := range servers {
		for j, to := range servers {
			if i != j {
				fn(from, to, fmt.Sprintf("%d to %d", i, j))
			}
		}
	}
}

func mustDo(t *testing.T, s *Server, code int, method, path, body string, header ...string) string {
	t.Helper()
	got, _, out := do(t, s, method, path, body, header...)
	if got != code {
		t.Fatalf("%s %s: %d %s, want %d", method, path, got, out, code)
	}
	return out
}

func TestWritesOfOneServerAreReadOnAllOthersAtOnce(t *testing.T) {
	t.Parallel()
	servers := severalServers(t, 3)
	const maps = "/api/v1/namespaces/default/configmaps"
	for _, s := range servers { // opens the caches
		mustDo(t, s, 200, "GET", maps, "")
	}
	each(servers, func(from, to *Server, name string) {
		for round := range 5 {
			object := fmt.Sprintf("%s-%d", strings.ReplaceAll(name, " ", "-"), round)
			created := mustDo(t, from, 201, "POST", maps, `{"metadata":{"name":"`+object+`"},"data":{"a":"1"}}`)
			rv := resourceVersionOf(t, created)
			for what, path := range map[string]string{
				"get": maps + "/" + object, "list": maps, "list not older": maps + "?resourceVersionMatch=NotOlderThan&resourceVersion=" + rv,
				"list exact": maps + "?resourceVersionMatch=Exact&resourceVersion=" + rv, "get not older": maps + "/" + object + "?resourceVersion=" + rv,
				"list by name": maps + "?fieldSelector=metadata.name%3D" + object,
			} {
				if out := mustDo(t, to, 200, "GET", path, ""); !strings.Contains(out, `"`+object+`"`) {
					t.Errorf("%s: %s does not show the object: %s", name, what, out)
				}
			}
			mustDo(t, to, 409, "POST", maps, `{"metadata":{"name":"`+object+`"}}`)
			mustDo(t, to, 200, "PATCH", maps+"/"+object, `{"data":{"b":"2"}}`, "Content-Type", "application/merge-patch+json")
			mustDo(t, from, 409, "PUT", maps+"/"+object, `{"metadata":{"name":"`+object+`","resourceVersion":"`+rv+`"}}`)
			mustDo(t, from, 200, "DELETE", maps+"/"+object, "")
			mustDo(t, to, 404, "GET", maps+"/"+object, "")
			mustDo(t, to, 404, "DELETE", maps+"/"+object, "")
			if out := mustDo(t, to, 200, "GET", maps, ""); strings.Contains(out, `"`+object+`"`) {
				t.Errorf("%s: a list shows the deleted object", name)
			}
		}
	})
}

func resourceVersionOf(t *testing.T, body string) string {
	t.Helper()
	_, rest, ok := strings.Cut(body, `"resourceVersion":"`)
	rv, _, _ := strings.Cut(rest, `"`)
	if !ok || rv == "" {
		t.Fatalf("no resourceVersion in %s", body)
	}
	return rv
}

// A resourceVersion of one server means the same on the others: for lists, pages and watches.
func TestResourceVersionsMeanTheSameOnAllServers(t *testing.T) {
	t.Parallel()
	servers := severalServers(t, 2)
	const maps = "/api/v1/namespaces/default/configmaps"
	for n := range 7 {
		mustDo(t, servers[n%2], 201, "POST", maps, fmt.Sprintf(`{"metadata":{"name":"m%d"}}`, n))
	}
	each(servers, func(from, to *Server, name string) {
		page := mustDo(t, from, 200, "GET", maps+"?limit=3", "")
		rv := resourceVersionOf(t, page)
		mustDo(t, to, 201, "POST", maps, `{"metadata":{"name":"m3a"}}`)
		_, rest, _ := strings.Cut(page, `"continue":"`)
		token, _, _ := strings.Cut(rest, `"`)
		next := mustDo(t, to, 200, "GET", maps+"?limit=3&continue="+token, "")
		if got := resourceVersionOf(t, next); got != rv || strings.Contains(next, "m3a") || !strings.Contains(next, `"m5"`) {
			t.Errorf("%s: the second page is at %s, not %s: %s", name, got, rv, next)
		}
		exact := "?resourceVersionMatch=Exact&resourceVersion=" + rv
		if a, b := mustDo(t, from, 200, "GET", maps+exact, ""), mustDo(t, to, 200, "GET", maps+exact, ""); a != b {
			t.Errorf("%s: the lists at %s differ:\n%s\n%s", name, rv, a, b)
		}
		mustDo(t, from, 200, "DELETE", maps+"/m3a", "")
	})
}

func TestWatchOfOneServerContinuesOnAnother(t *testing.T) {
	t.Parallel()
	servers := severalServers(t, 2)
	each(servers, func(from, to *Server, name string) {
		_, a := overHTTP(t, from, "application/json")
		_, b := overHTTP(t, to, "application/json")
		maps, ctx := a.CoreV1().ConfigMaps("default"), t.Context()
		// The watch begins at a revision that its server has not reached yet.
		first, err := maps.Create(ctx, configMap("first"), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		w, err := b.CoreV1().ConfigMaps("default").Watch(ctx, metav1.ListOptions{ResourceVersion: first.ResourceVersion, AllowWatchBookmarks: true})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := maps.Create(ctx, configMap("second"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := maps.Delete(ctx, "first", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := maps.Delete(ctx, "second", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"ADDED second", "DELETED first", "DELETED second"} {
			ev, ok := <-w.ResultChan()
			if !ok || ev.Type == watch.Error {
				t.Fatalf("%s: the watch ended: %v", name, ev)
			}
			if got := fmt.Sprintf("%s %s", ev.Type, ev.Object.(*corev1.ConfigMap).Name); got != want {
				t.Errorf("%s: %s, want %s", name, got, want)
			}
		}
		w.Stop()
	})
}

func TestDefinitionOfOneServerIsServedByAllAtOnce(t *testing.T) {
	t.Parallel()
	servers := severalServers(t, 2)
	for _, s := range servers {
		s.startBackground()
	}
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	round := 0
	each(servers, func(from, to *Server, name string) {
		round++
		group := fmt.Sprintf("g%d.example.com", round)
		definition := func(kept string) string {
			return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.` + group + `"},"spec":{"group":"` + group + `","scope":"Namespaced",
			"names":{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList"},
			"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":{` + kept + `}}}}}}]}}`
		}
		mustDo(t, from, 201, "POST", definitions, definition(`"a":{"type":"string"}`))
		eventually(t, func() error {
			if out := mustDo(t, from, 200, "GET", definitions+"/things."+group, ""); !strings.Contains(out, `"InitialNamesAccepted"`) {
				return fmt.Errorf("not established: %s", out)
			}
			return nil
		})
		things := "/apis/" + group + "/v1/namespaces/default/things"
		if out := mustDo(t, to, 200, "GET", "/apis/"+group+"/v1", ""); !strings.Contains(out, `"things"`) {
			t.Errorf("%s: discovery: %s", name, out)
		}
		mustDo(t, to, 200, "GET", things, "")
		mustDo(t, to, 201, "POST", things, `{"apiVersion":"`+group+`/v1","kind":"Thing","metadata":{"name":"one"},"spec":{"a":"x"}}`)
		// A field that was just defined is not pruned.
		mustDo(t, from, 200, "PATCH", definitions+"/things."+group, `{"spec":`+strings.SplitN(definition(`"a":{"type":"string"},"b":{"type":"string"}`), `"spec":`, 2)[1], "Content-Type", "application/merge-patch+json")
		if out := mustDo(t, to, 201, "POST", things, `{"apiVersion":"`+group+`/v1","kind":"Thing","metadata":{"name":"two"},"spec":{"a":"x","b":"y"}}`); !strings.Contains(out, `"b":"y"`) {
			t.Errorf("%s: a new field was pruned: %s", name, out)
		}
	})
}

// Roles, webhooks, policies and limits that were written through another server hold at once.
func TestAdmissionAndAuthorizationKnowWhatOtherServersStored(t *testing.T) {
	t.Parallel()
	servers := severalServers(t, 2)
	for _, s := range servers {
		own := s.Client(auth.Component("tester", auth.GroupMasters))
		s.Use(Security{Authorizer: auth.Masters{}})
		roles, err := rbac.New(t.Context(), own)
		if err != nil {
			t.Fatal(err)
		}
		authorizer := auth.Authorizers{auth.Masters{}, roles}
		chain, err := admission.Default(t.Context(), own, admission.Config{Disable: []string{"ServiceAccount"}, Authorizer: authorizer, Served: s.Served(), Roles: roles,
			ValidatingPolicy: policy.NewValidating(t.Context(), policy.Config{Client: own, Served: s.Served(), Authorizer: authorizer})})
		if err != nil {
			t.Fatal(err)
		}
		s.Use(Security{Authorizer: authorizer, Admission: chain, Authenticator: asHeader{}})
		if err := s.boot.reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, round := t.Context(), 0
	each(servers, func(from, to *Server, name string) {
		round++
		root := []string{"X-User", "root", "X-Group", "system:masters"}
		user := []string{"X-User", fmt.Sprintf("u%d", round)}
		ns := fmt.Sprintf("ns%d", round)
		maps := "/api/v1/namespaces/" + ns + "/configmaps"
		admin := from.Client(auth.Component("root", auth.GroupMasters))
		mustDo(t, from, 201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"`+ns+`"}}`, root...)
		mustDo(t, to, 403, "GET", maps, "", user...)
		if _, err := client.Create(ctx, admin, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "r"}, Rules: []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{""}, Resources: []string{"configmaps"}}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Create(ctx, admin, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "r"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "r"}, Subjects: []rbacv1.Subject{{Kind: "User", Name: user[1]}}}); err != nil {
			t.Fatal(err)
		}
		mustDo(t, to, 200, "GET", maps, "", user...)
		mustDo(t, to, 201, "POST", maps, `{"metadata":{"name":"m"}}`, user...)
		mustDo(t, from, 200, "DELETE", "/apis/rbac.authorization.k8s.io/v1/namespaces/"+ns+"/rolebindings/r", "", root...)
		mustDo(t, to, 403, "DELETE", maps+"/m", "", user...)

		mustDo(t, from, 201, "POST", "/api/v1/namespaces/"+ns+"/limitranges", `{"metadata":{"name":"l"},"spec":{"limits":[{"type":"Container","default":{"cpu":"100m"}}]}}`, root...)
		if out := mustDo(t, to, 201, "POST", "/api/v1/namespaces/"+ns+"/pods", `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, root...); !strings.Contains(out, `"cpu":"100m"`) {
			t.Errorf("%s: no default limit: %s", name, out)
		}
		mustDo(t, from, 201, "POST", "/api/v1/namespaces/"+ns+"/resourcequotas", `{"metadata":{"name":"q"},"spec":{"hard":{"count/configmaps":"1"}}}`, root...)
		mustDo(t, to, 403, "POST", maps, `{"metadata":{"name":"over"}}`, root...)
		rule := fmt.Sprintf(`{"metadata":{"name":"p%d"},"spec":{"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE"],"resources":["secrets"],"resourceNames":["s%d"]}]},"validations":[{"expression":"false","message":"no secret here"}]}}`, round, round)
		mustDo(t, from, 201, "POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies", rule, root...)
		mustDo(t, from, 201, "POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", fmt.Sprintf(`{"metadata":{"name":"p%d"},"spec":{"policyName":"p%d","validationActions":["Deny"]}}`, round, round), root...)
		if out := mustDo(t, to, 422, "POST", "/api/v1/namespaces/"+ns+"/secrets", fmt.Sprintf(`{"metadata":{"name":"s%d"}}`, round), root...); !strings.Contains(out, "no secret here") {
			t.Errorf("%s: the policy: %s", name, out)
		}
		mustDo(t, from, 200, "DELETE", "/api/v1/namespaces/"+ns, "", root...)
		mustDo(t, to, 403, "POST", "/api/v1/namespaces/"+ns+"/secrets", `{"metadata":{"name":"late"}}`, root...)
	})
}

// asHeader authenticates the user that the test names.
type asHeader struct{}

func (asHeader) Authenticate(r *http.Request) (auth.User, bool, error) {
	return auth.User{Name: r.Header.Get("X-User"), Groups: r.Header.Values("X-Group")}, true, nil
}

func TestQuotaHoldsForWritesThroughAllServers(t *testing.T) {
	t.Parallel()
	servers := severalServers(t, 2)
	for _, s := range servers {
		chain, err := admission.Default(t.Context(), s.Client(auth.Component("tester", auth.GroupMasters)), admission.Config{Disable: []string{"ServiceAccount"}, Authorizer: auth.Masters{}, Served: s.Served()})
		if err != nil {
			t.Fatal(err)
		}
		s.Use(Security{Authorizer: allowAll{}, Admission: chain})
		if err := s.boot.reconcile(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	const most, ns = 20, "/api/v1/namespaces/default/"
	mustDo(t, servers[0], 201, "POST", ns+"resourcequotas", fmt.Sprintf(`{"metadata":{"name":"q"},"spec":{"hard":{"count/configmaps":"%d"}}}`, most))
	mustDo(t, servers[1], 200, "PATCH", ns+"resourcequotas/q/status", fmt.Sprintf(`{"status":{"hard":{"count/configmaps":"%d"},"used":{"count/configmaps":"0"}}}`, most), "Content-Type", "application/merge-patch+json")
	var work sync.WaitGroup
	var mu sync.Mutex
	codes := map[int]int{}
	for n := range 8 {
		s := servers[n%2]
		work.Go(func() {
			for i := range 10 {
				code, _, body := do(t, s, "POST", ns+"configmaps", fmt.Sprintf(`{"metadata":{"name":"m%d-%d"}}`, n, i))
				mu.Lock()
				if codes[code]++; code != 201 && code != 403 && codes[code] == 1 {
					t.Errorf("%d %s", code, body)
				}
				mu.Unlock()
			}
		})
	}
	work.Wait()
	if codes[201] != most {
		t.Errorf("%v creates, want %d", codes, most)
	}
	if got := strings.Count(mustDo(t, servers[0], 200, "GET", ns+"configmaps", ""), `"uid"`); got != most {
		t.Errorf("%d objects, want %d", got, most)
	}
}
