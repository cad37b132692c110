package relations

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/yaml"
)

// shop reads a shop of three tiers from testdata.
func shop(t *testing.T) []runtime.Object {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "shop.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var out []runtime.Object
	for _, doc := range strings.Split(string(data), "\n---\n") {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(doc), &kind); err != nil {
			t.Fatal(err)
		}
		obj, ok := map[string]runtime.Object{
			"Deployment": &appsv1.Deployment{}, "StatefulSet": &appsv1.StatefulSet{}, "Service": &corev1.Service{},
			"ConfigMap": &corev1.ConfigMap{}, "Ingress": &networkingv1.Ingress{}, "Pod": &corev1.Pod{},
		}[kind.Kind]
		if !ok {
			t.Fatalf("kind %q", kind.Kind)
		}
		if err := yaml.UnmarshalStrict([]byte(doc), obj); err != nil {
			t.Fatal(err)
		}
		out = append(out, obj)
	}
	return out
}

func graphOf(t *testing.T) *Graph {
	t.Helper()
	o, unread, err := Read(t.Context(), fake.NewClientset(shop(t)...), custom(t), "")
	if err != nil || len(unread) > 0 {
		t.Fatal(err, unread)
	}
	return Derive(o)
}

func edges(g *Graph) (all []string) {
	for _, r := range g.Relations {
		all = append(all, r.From.String()+" → "+r.To.String()+" ("+strings.Join(r.Evidence, "; ")+")")
	}
	return all
}

func TestRelationsAreDerivedFromSettings(t *testing.T) {
	g := graphOf(t)
	want := []string{
		"outside → shop/web (Ingress shop shop.example)",
		"shop/api → shop/db (Deployment api container api env DATABASE_URL)",
		"shop/api → shop/queue (Deployment api container api args)",
		"shop/web → shop/api (ConfigMap web data.nginx.conf)",
		"shop/worker → shop/db (Deployment worker container worker env DB_HOST)",
		"shop/worker → shop/queue (Deployment worker container worker env QUEUE)",
	}
	if got := edges(g); !slices.Equal(got, want) {
		t.Errorf("relations:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	db := g.Find(ID{"shop", "db"})
	if db == nil || !slices.Equal(db.Data, []string{"data-db-*"}) || db.Ready != 1 || db.Nodes["node-1"] != 1 {
		t.Errorf("db: %+v", db)
	}
	if web := g.Find(ID{"shop", "web"}); web == nil || web.System != "store-front" {
		t.Errorf("web: %+v", web)
	}
}

func TestATextNamesAServiceOnlyWithASign(t *testing.T) {
	at := Object{"Service", "shop", "api"}
	x := &serviceIndex{map[Object][]ID{at: nil, {"Service", "other", "api"}: nil}, map[Object]map[string]bool{at: {"8080": true}}, nil}
	for text, want := range map[string]string{
		"api": "", "api:8080": "shop/api", "--url=http://api/x": "shop/api", "user:pass@api": "shop/api", "the api is old": "", "api:9999 here": "",
		"api.other": "other/api", "http://api.other.svc.cluster.local:80": "other/api", "api-0.api.other.svc": "other/api", "api.example.com": "", "x.api:8080": "shop/api",
		"API:8080": "shop/api", "": "", "...": "", "api.other.example.com": "",
	} {
		got := ""
		for _, h := range hosts(text) {
			if s, ok := x.find(h, "shop"); ok {
				got = s.Namespace + "/" + s.Name
			}
		}
		if got != want {
			t.Errorf("%q names %q, want %q", text, got, want)
		}
	}
}

func TestASettingSaysWhetherItsValueIsAHost(t *testing.T) {
	for setting, want := range map[string]bool{"DB_HOST": true, "--upstream": true, "QUEUE": true, "MODE": false, "": false, "my-queue": true, "color": false} {
		if got := meansHost(setting, "my-queue"); got != (want && setting != "QUEUE") {
			t.Errorf("setting %q with the value my-queue: %v", setting, got)
		}
	}
	if !meansHost("QUEUE", "queue.shop") {
		t.Error("QUEUE=queue.shop is no host")
	}
}

func TestImpactFollowsTheCallers(t *testing.T) {
	g := graphOf(t)
	first, found := g.LossOf(Object{"PersistentVolumeClaim", "shop", "data-db-0"})
	if !found {
		t.Fatal("no component has the claim")
	}
	var got []string
	for _, e := range g.Impact(first) {
		got = append(got, e.Component.String())
	}
	if want := []string{"shop/db", "shop/api", "shop/worker", "shop/web", "outside"}; !slices.Equal(got, want) {
		t.Errorf("hit: %v, want %v", got, want)
	}
	first, _ = g.LossOf(Object{"Node", "", "node-1"})
	if len(first) != 1 || first[0].Lost != 1 || first[0].How != "1 of 1 pods" {
		t.Errorf("loss of the node: %+v", first)
	}
	if _, found := g.LossOf(Object{"Service", "shop", "nothing"}); found {
		t.Error("a Service that does not exist has an effect")
	}
}

func TestCyclesAreFound(t *testing.T) {
	b := newBuilder(&Objects{})
	for _, r := range []string{"ab", "bc", "ca", "cd", "ee"} {
		from, to := ID{"n", r[:1]}, ID{"n", r[1:]}
		b.component(from, "n")
		b.component(to, "n")
		b.relate(from, to, "", Derived, "test")
	}
	g := b.graph()
	cycles := g.Cycles()
	if len(cycles) != 1 || !slices.Equal(cycles[0], []ID{{"n", "a"}, {"n", "b"}, {"n", "c"}}) {
		t.Errorf("cycles: %v", cycles)
	}
	if p := g.places(); p[ID{"n", "a"}].layer != 0 || p[ID{"n", "d"}].layer != 1 {
		t.Errorf("places: %v", p)
	}
}

func TestDrawingsAreWellFormed(t *testing.T) {
	g := graphOf(t)
	var svg, mermaid, text strings.Builder
	for _, err := range []error{g.SVG(&svg), g.Mermaid(&mermaid), g.Text(&text, true)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	d := xml.NewDecoder(strings.NewReader(svg.String()))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(svg.String(), "<rect"); n != len(g.Components) {
		t.Errorf("%d boxes, want %d", n, len(g.Components))
	}
	if n := strings.Count(mermaid.String(), "-->"); n != len(g.Relations) {
		t.Errorf("Mermaid has %d arrows, want %d:\n%s", n, len(g.Relations), mermaid.String())
	}
	if !strings.Contains(text.String(), "system store-front\n  shop/web  0 of 2 ready  offers web:80/TCP\n    → shop/api  by Service shop/api\n        ConfigMap web data.nginx.conf\n") {
		t.Errorf("text:\n%s", text.String())
	}
}

func TestAnUnreadKindIsNamed(t *testing.T) {
	c := fake.NewClientset(shop(t)...)
	c.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("forbidden")
	})
	o, unread, err := Read(t.Context(), c, custom(t), "shop")
	if err != nil || len(unread) != 1 || !strings.HasPrefix(unread[0], "ConfigMaps: ") {
		t.Fatal(unread, err)
	}
	if len(Derive(o).Relations) != 5 {
		t.Error("other relations are missing")
	}
}

func FuzzHosts(f *testing.F) {
	for _, s := range []string{"http://api:80", "a.b.c", ":::", "@//", "x:99999999999999999999"} {
		f.Add(s)
	}
	x := &serviceIndex{map[Object][]ID{{"Service", "shop", "api"}: nil}, map[Object]map[string]bool{}, nil}
	f.Fuzz(func(t *testing.T, text string) {
		for _, h := range hosts(text) {
			if !strings.Contains(strings.ToLower(text), h.name) {
				t.Fatalf("%q is not in %q", h.name, text)
			}
			x.find(h, "shop")
		}
	})
}
