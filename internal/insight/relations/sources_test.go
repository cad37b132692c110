package relations

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"

	"github.com/knarr-project/knarr/internal/architecture"
)

// custom returns a client with custom resources.
func custom(t *testing.T, objects ...runtime.Object) *dynamicfake.FakeDynamicClient {
	t.Helper()
	kinds := map[schema.GroupVersionResource]string{architecture.Components: "ComponentList", architecture.Systems: "SystemList", architecture.Traffics: "TrafficList"}
	for _, r := range routes {
		for _, v := range r.versions {
			kinds[schema.GroupVersionResource{Group: "gateway.networking.k8s.io", Version: v, Resource: r.resource}] = r.kind + "List"
		}
	}
	return dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, objects...)
}

// documents reads custom resources from a file of testdata.
func documents(t *testing.T, file string) (out []runtime.Object) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	for _, doc := range strings.Split(string(data), "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(doc), &u.Object); err != nil {
			t.Fatal(err)
		}
		out = append(out, u)
	}
	return out
}

func derive(t *testing.T, d dynamic.Interface, namespace string) *Graph {
	t.Helper()
	o, unread, err := Read(t.Context(), fake.NewClientset(shop(t)...), d, namespace)
	if err != nil || len(unread) > 0 {
		t.Fatal(err, unread)
	}
	return Derive(o)
}

func TestSourcesStandSideBySide(t *testing.T) {
	g := derive(t, custom(t, documents(t, "declared.yaml")...), "")
	var got []string
	for i := range g.Relations {
		r := &g.Relations[i]
		got = append(got, fmt.Sprintf("%s → %s %s", r.From, r.To, g.known(r)))
	}
	want := []string{
		"outside → shop/web [declared, derived, seen 5]",
		"shop/api → outside [declared]  ! declared, never seen",
		"shop/api → shop/absent [declared]  ! declared, but the component is missing",
		"shop/api → shop/db [declared, derived] optional  ! declared, never seen",
		"shop/api → shop/queue [derived]  ! not declared",
		"shop/web → shop/api [declared, derived, seen 12]",
		"shop/web → shop/db [denied 3]  ! denied; seen, not declared",
		"shop/web → shop/worker [seen 1]  ! seen, not declared",
		"shop/worker → shop/db [derived]  ! not declared",
		"shop/worker → shop/queue [derived]",
	}
	if !slices.Equal(got, want) {
		t.Errorf("relations:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	web := g.Find(ID{"shop", "web"})
	if web == nil || !web.Declared || web.System != "all" && web.System != "front" || !web.In("front") || !web.In("all") || web.Owner != "team-web" || len(web.Workloads) != 1 {
		t.Errorf("web: %+v", web)
	}
	var text, svg, mermaid bytes.Buffer
	for _, err := range []error{g.Text(&text, true), g.SVG(&svg), g.Mermaid(&mermaid)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for part, in := range map[string]string{
		"    → shop/db  [denied 3]  ! denied; seen, not declared": text.String(), "2 declared, never seen": text.String(), "layer edge  owner team-web": text.String(),
		"denied by a policy</text>": svg.String(), "shop/web depends on shop/db (denied; seen, not declared).": svg.String(), "--x|denied; seen, not declared|": mermaid.String(),
	} {
		if !strings.Contains(in, part) {
			t.Errorf("%q is missing in\n%s", part, in)
		}
	}
	if _, err := json.Marshal(g); err != nil {
		t.Error(err)
	}
}

func TestImpactFollowsDeclaredAndSeenRelations(t *testing.T) {
	g := derive(t, custom(t, documents(t, "declared.yaml")...), "")
	lost := func(kind, name string) map[string]float64 {
		first, found := g.LossOf(Object{kind, "shop", name})
		if !found {
			t.Fatalf("no component has the %s %s", kind, name)
		}
		out := map[string]float64{}
		for _, e := range g.Impact(first) {
			out[e.Component.String()] = e.Lost
		}
		return out
	}
	if got := lost("Deployment", "worker"); got["shop/web"] != 1 {
		t.Errorf("a caller that was seen does not suffer: %v", got)
	}
	got := lost("StatefulSet", "db")
	if got["shop/api"] != 0.5 {
		t.Errorf("an optional requirement does not count half: %v", got)
	}
	if got["shop/web"] != 0.5 {
		t.Errorf("web suffers by worker, and not by the denied connection: %v", got)
	}
}

func TestWithoutRightsTheMapIsDerived(t *testing.T) {
	d := custom(t, documents(t, "declared.yaml")...)
	d.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		if a.GetResource().Group == architecture.GroupVersion.Group {
			return true, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "", nil)
		}
		return true, nil, apierrors.NewNotFound(a.GetResource().GroupResource(), "")
	})
	g := derive(t, d, "")
	if g.Declared || g.Counted || g.hasSources() || len(g.Relations) != 6 {
		t.Errorf("%+v", g.Relations)
	}
	d = custom(t, documents(t, "declared.yaml")...)
	d.PrependReactor("list", "traffics", func(a clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(a.GetResource().GroupResource(), "", nil)
	})
	_, unread, err := Read(t.Context(), fake.NewClientset(shop(t)...), d, "")
	if err != nil || len(unread) != 1 || !strings.HasPrefix(unread[0], "Traffics: ") {
		t.Errorf("traffic that cannot be read is not named: %v %v", unread, err)
	}
}

func TestRoutesOfTheGatewayAPIAreEntries(t *testing.T) {
	route := func(kind, version, parent string) runtime.Object {
		u := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "gateway.networking.k8s.io/" + version, "kind": kind, "metadata": map[string]any{"namespace": "shop", "name": strings.ToLower(kind + parent)},
			"spec": map[string]any{"hostnames": []any{"api.example"}, "parentRefs": []any{map[string]any{"kind": parent, "name": "x"}},
				"rules": []any{map[string]any{"backendRefs": []any{map[string]any{"name": "api", "port": int64(8080)}}}}},
		}}
		return u
	}
	g := derive(t, custom(t, route("HTTPRoute", "v1", "Gateway"), route("GRPCRoute", "v1", "Service")), "shop")
	for _, e := range edges(g) {
		if strings.HasPrefix(e, "outside → shop/api") {
			if e != "outside → shop/api (HTTPRoute httproutegateway api.example)" {
				t.Error(e)
			}
			return
		}
	}
	t.Errorf("no entry: %v", edges(g))
}

func TestAMapOfANamespaceHasItsNeighboursOnly(t *testing.T) {
	component := func(namespace, name string, requires ...architecture.Requirement) *architecture.Component {
		c := &architecture.Component{}
		c.Namespace, c.Name, c.Spec.Requires, c.Spec.Exposed = namespace, name, requires, []string{"http"}
		return c
	}
	all := []*architecture.Component{
		component("shop", "web", architecture.Requirement{Component: "auth", Namespace: "platform"}),
		component("platform", "auth", architecture.Requirement{Component: "ldap"}),
		component("platform", "ldap"),
		component("watch", "probe", architecture.Requirement{Component: "web", Namespace: "shop"}, architecture.Requirement{Component: "ldap", Namespace: "platform"}),
	}
	var got []string
	for _, c := range within(all, "shop") {
		got = append(got, fmt.Sprintf("%s %d %d", c.Reference(), len(c.Spec.Requires), len(c.Spec.Exposed)))
	}
	if want := []string{"shop/web 1 1", "platform/auth 0 0", "watch/probe 1 0"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if len(all[3].Spec.Requires) != 2 {
		t.Error("the object itself was changed")
	}
}
