package architecture

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

func enforced(components ...*Component) *Model {
	return NewModel(components, []*System{around("all", func(s *SystemSpec) {
		s.Namespaces, s.Network = []string{"ns", "other"}, NetworkEnforce
		s.Forbidden = []ForbiddenDependency{{From: Side{Component: "ns/bad"}, To: Side{Component: "ns/api"}}}
	})})
}

func TestPoliciesAllowWhatIsDeclaredAndNoMore(t *testing.T) {
	api := part("api", "store")
	api.Spec.Offers = append(api.Spec.Offers, Offer{Name: "admin", Port: intstr.FromString("admin")}, Offer{Name: "unused", Port: intstr.FromInt32(1)})
	api.Spec.Exposed = []string{"admin"}
	api.Spec.RequiresOutside = []OutsideRequirement{{Name: "mail", CIDR: "203.0.113.9/24", Ports: []OutsidePort{{Port: 25}}}, {Name: "pay", Host: "pay.example.com", Ports: []OutsidePort{{Port: 443}}}}
	api.Spec.Access = []AccessRule{{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}}
	web := part("web", "api").in("other", "")
	web.Spec.Requires[0].Namespace, web.Spec.Requires[0].Port = "ns", "http"
	policies, hosts := enforced(api, web, part("bad", "api"), part("store")).Policies(at("api"), Addresses{
		Inside: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}, APIServers: []netip.AddrPort{netip.MustParseAddrPort("192.0.2.1:6443")},
	})
	if len(policies) != 2 || !slices.Equal(hosts, []string{"pay.example.com"}) {
		t.Fatalf("%d policies, hosts %v", len(policies), hosts)
	}
	for i, want := range []string{`
ingress:
- from:
  - podSelector: {matchLabels: {app: api}}
- from:
  - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: other}}
    podSelector: {matchLabels: {app: web}}
  ports: [{port: 8080, protocol: TCP}]
- ports: [{port: admin, protocol: TCP}]
podSelector: {matchLabels: {app: api}}
policyTypes: [Ingress]`, `
egress:
- ports: [{port: 53, protocol: UDP}, {port: 53, protocol: TCP}]
- to: [{podSelector: {matchLabels: {app: api}}}]
- to: [{podSelector: {matchLabels: {app: store}}}]
  ports: [{port: 8080, protocol: TCP}]
- to: [{ipBlock: {cidr: 192.0.2.1/32}}]
  ports: [{port: 6443, protocol: TCP}]
- to: [{ipBlock: {cidr: 203.0.113.0/24}}]
  ports: [{port: 25, protocol: TCP}]
- to: [{ipBlock: {cidr: 0.0.0.0/0, except: [10.42.0.0/16]}}, {ipBlock: {cidr: "::/0"}}]
  ports: [{port: 443, protocol: TCP}]
podSelector: {matchLabels: {app: api}}
policyTypes: [Egress]`} {
		var wanted any
		if err := yaml.Unmarshal([]byte(want), &wanted); err != nil {
			t.Fatal(err)
		}
		a, _ := yaml.Marshal(policies[i].Spec)
		b, _ := yaml.Marshal(wanted)
		if string(a) != string(b) {
			t.Errorf("have\n%s\nwant\n%s", a, b)
		}
	}
	owner := policies[0].OwnerReferences[0]
	if policies[0].Name != "component-api-ingress" || owner.Kind != "Component" || owner.Name != "api" || policies[0].Labels[ComponentLabel] != "api" {
		t.Errorf("%+v", policies[0].ObjectMeta)
	}
}

func TestLongNamesOfPoliciesAreValidAndDifferent(t *testing.T) {
	a, _ := PolicyNames(strings.Repeat("a", 253))
	b, egress := PolicyNames(strings.Repeat("a", 252) + "b")
	if len(a) > 253 || len(egress) > 253 || a == b || len(labelValue(strings.Repeat("a", 253))) > 63 {
		t.Errorf("%s\n%s", a, b)
	}
}

func TestAccessBeyondTheDeclaredIsNamed(t *testing.T) {
	c := part("api")
	c.Spec.Data = []Data{{ConfigMap: "settings", Access: Read}, {Secret: "key"}, {ConfigMap: "state", Access: Write}}
	c.Spec.Access = []AccessRule{{APIGroups: []string{"batch"}, Resources: []string{"jobs"}, Verbs: []string{"create"}}}
	rule := func(verbs, groups, resources string, names ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: strings.Fields(verbs), APIGroups: strings.Split(groups, " "), Resources: strings.Fields(resources), ResourceNames: names}
	}
	for _, tc := range []struct {
		about string
		rule  rbacv1.PolicyRule
		want  string
	}{
		{"reads of other kinds", rule("get list watch", "", "pods services"), ""},
		{"declared data", rule("get", "", "configmaps", "settings", "state"), ""},
		{"declared Secret", rule("get", "", "secrets", "key"), ""},
		{"write of data that is declared for reads", rule("get update", "", "configmaps", "settings"), "update configmaps settings"},
		{"write of data that is declared for writes", rule("update", "", "configmaps", "state"), ""},
		{"another Secret", rule("get", "", "secrets", "key", "other"), "get secrets key, other"},
		{"all Secrets", rule("get list", "", "secrets"), "get, list secrets"},
		{"everything", rule("*", "*", "*"), "* *"},
		{"declared access", rule("create", "batch", "jobs"), ""},
		{"more than the declared access", rule("create delete", "batch", "jobs"), "delete jobs.batch"},
		{"self reviews", rule("create", "authorization.k8s.io", "selfsubjectaccessreviews"), ""},
		{"paths", rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"*"}}, ""},
	} {
		have := c.ExcessiveAccess([]Grant{{Account: "ns/api", Binding: "RoleBinding ns/b", Role: "Role r", Namespace: "ns", Rules: []rbacv1.PolicyRule{tc.rule}}})
		if tc.want == "" && len(have) > 0 || tc.want != "" && (len(have) != 1 || have[0] != "service account ns/api may "+tc.want+" in namespace ns: RoleBinding ns/b gives it Role r") {
			t.Errorf("%s: %q, want %q", tc.about, have, tc.want)
		}
	}
}

func TestFlowsAreComparedWithDeclarations(t *testing.T) {
	web, api := part("web", "api"), part("api", "store")
	web.Spec.Exposed = []string{"http"}
	api.Spec.RequiresOutside = []OutsideRequirement{{Name: "pay", Host: "pay.example.com", Ports: []OutsidePort{{Port: 443}}}}
	store := part("store")
	store.Spec.Offers[0].Port = intstr.FromString("sql")
	m := NewModel([]*Component{web, api, store}, nil)
	cluster := Cluster{
		Labels: func(e End) map[string]string { return map[string]string{"app": e.Name} },
		Port:   func(to ComponentReference, name string) []int32 { return map[string][]int32{"sql": {5432}}[name] },
	}
	now := time.Now()
	end := func(text string) End {
		kind, name, _ := strings.Cut(text, "/")
		switch kind {
		case "outside":
			return End{Outside: true}
		case "Node":
			return End{Kind: kind, Name: name}
		}
		return End{Kind: kind, Namespace: "ns", Name: name}
	}
	for _, tc := range []struct {
		from, to string
		port     int32
		age      time.Duration
		want     string
	}{
		{"Deployment/web", "Deployment/api", 8080, 0, ""},
		{"Deployment/api", "StatefulSet/store", 5432, 0, ""},
		{"Deployment/api", "StatefulSet/store", 5433, 0, "ns/api: Deployment ns/api connects to component ns/store at 5433/TCP, which no requirement declares"},
		{"Deployment/web", "StatefulSet/store", 5432, 0, "ns/web: Deployment ns/web connects to component ns/store at 5432/TCP, which no requirement declares"},
		{"Deployment/web", "StatefulSet/store", 5432, 2 * time.Hour, ""},
		{"Pod/web", "Pod/web", 1, 0, ""},
		{"Node/n", "Deployment/api", 8080, 0, ""},
		{"outside", "Deployment/web", 8080, 0, ""},
		{"outside", "Deployment/api", 8080, 0, "ns/api: clients beyond the cluster connect to Deployment ns/api at 8080/TCP, which spec.exposed does not declare"},
		{"Deployment/api", "outside", 443, 0, ""},
		{"Deployment/web", "outside", 443, 0, "ns/web: Deployment ns/web connects to servers beyond the cluster at 443/TCP, which spec.requiresOutside does not declare"},
		{"Deployment/tool", "Deployment/api", 8080, 0, "ns/api: Deployment ns/tool, which belongs to no component, connects to Deployment ns/api at 8080/TCP"},
		{"Deployment/api", "Deployment/tool", 80, 0, "ns/api: Deployment ns/api connects to Deployment ns/tool at 80/TCP, which belongs to no component"},
		{"Deployment/api", "Deployment/dns", 53, 0, ""},
		{"Deployment/tool", "Deployment/other", 80, 0, ""},
	} {
		f := Flow{From: end(tc.from), To: Destination{End: end(tc.to), Port: tc.port, Protocol: "TCP"}, LastSeen: metav1.NewTime(now.Add(-tc.age))}
		by, next := m.Undeclared([]Flow{f, f}, cluster, now)
		have := ""
		for ref, texts := range by {
			have += ref.String() + ": " + strings.Join(texts, "; ")
		}
		if have != tc.want || (next > 0) != (tc.want != "") {
			t.Errorf("%s to %s at %d: %q, want %q", tc.from, tc.to, tc.port, have, tc.want)
		}
	}
}
