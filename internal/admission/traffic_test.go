package admission

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/knarr-project/knarr/internal/architecture"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/client/clienttest"
)

func trafficPlugin(t *testing.T, objects ...client.Object) nodeRestriction {
	t.Helper()
	c := clienttest.NewMemory(objects...)
	return nodeRestriction{
		base: base{"NodeRestriction", []Operation{Create, Update, Delete}}, now: func() time.Time { return time.Unix(2000000000, 0) },
		pods: client.NewLazy[*corev1.Pod](t.Context(), c, nil), nodes: client.NewLazy[*corev1.Node](t.Context(), c, nil),
		services: client.NewLazy[*corev1.Service](t.Context(), c, nil), jobs: client.NewLazy[*batchv1.Job](t.Context(), c, nil),
	}
}

func trafficObject(t *testing.T, node string, entries ...architecture.Flow) *unstructured.Unstructured {
	t.Helper()
	u, err := (&architecture.Traffic{ObjectMeta: metav1.ObjectMeta{Name: node}, Entries: entries}).Unstructured()
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func ownedPod(name, node, ip, ownerKind, owner, hash string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: ip}}}}
	if owner != "" {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: ownerKind, Name: owner, Controller: new(true)}}
	}
	if hash != "" {
		p.Labels = map[string]string{"pod-template-hash": hash}
	}
	return p
}

func TestTrafficOfANodeIsNamedByTheServer(t *testing.T) {
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "report-29000000", OwnerReferences: []metav1.OwnerReference{{Kind: "CronJob", Name: "report", Controller: new(true)}}}}
	ended := ownedPod("old", "n1", "10.42.0.3", "Job", "old", "")
	ended.Status.Phase = corev1.PodSucceeded
	node := func(name, ip, cidr string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{PodCIDRs: []string{cidr}}, Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip}}}}
	}
	p := trafficPlugin(t, job, ended, node("n1", "192.0.2.1", "10.42.0.0/24"), node("n2", "192.0.2.2", "10.42.1.0/24"),
		ownedPod("web-abc-1", "n2", "10.42.1.2", "ReplicaSet", "web-abc", "abc"), ownedPod("store-0", "n1", "10.42.0.3", "StatefulSet", "store", ""),
		ownedPod("report-29000000-x", "n1", "10.42.0.4", "Job", "report-29000000", ""),
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "store"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ClusterIPs: []string{"10.43.0.7"}, Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080}}}})
	at := func(address string) architecture.End { return architecture.End{Address: address} }
	store := architecture.Destination{End: at("10.42.0.3"), Port: 8080, Protocol: "TCP"}
	seen := metav1.Unix(1999999000, 0)
	flow := func(from architecture.End, to architecture.Destination, via string, v architecture.Verdict) architecture.Flow {
		return architecture.Flow{From: from, To: to, Via: via, Verdict: v, FirstSeen: seen, LastSeen: seen, Connections: 2}
	}
	stored := architecture.Flow{From: architecture.End{Outside: true}, To: architecture.Destination{End: architecture.End{Namespace: "shop", Kind: "StatefulSet", Name: "store"}, Port: 8080, Protocol: "TCP"},
		Service: "shop/store", Verdict: architecture.Allowed, FirstSeen: metav1.Unix(1999990000, 0), LastSeen: metav1.Unix(1999990000, 0), Connections: 5}
	a := &Attributes{User: auth.NodePart("n1"), Operation: Update, Resource: architecture.Traffics, Name: "n1", OldObject: trafficObject(t, "n1", stored),
		Object: trafficObject(t, "n1",
			flow(at("10.42.1.2"), store, "", architecture.Allowed),
			flow(at("10.42.0.4"), store, "10.43.0.7:80", architecture.Denied),
			flow(architecture.End{Outside: true}, store, "192.0.2.1:30080", architecture.Allowed),
			// processes of the other node
			flow(at("10.42.1.1"), store, "", architecture.Allowed),
			// in the other node's record
			flow(at("10.42.0.3"), architecture.Destination{End: at("10.42.1.2"), Port: 80, Protocol: "TCP"}, "", architecture.Allowed),
			// not about a pod of the node
			flow(at("10.42.1.2"), architecture.Destination{End: at("10.42.1.2"), Port: 81, Protocol: "TCP"}, "", architecture.Denied),
			// unknown
			flow(at("10.42.0.99"), store, "", architecture.Allowed),
			// named by the node
			flow(architecture.End{Namespace: "shop", Kind: "Deployment", Name: "forged"}, store, "", architecture.Allowed),
		)}
	a.Object.(*unstructured.Unstructured).SetLabels(map[string]string{"forged": "x"})
	if err := p.Admit(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	var got architecture.Traffic
	if err := architecture.From(a.Object.(*unstructured.Unstructured), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Labels) > 0 {
		t.Errorf("a node has set labels: %v", got.Labels)
	}
	var lines []string
	for _, f := range got.Entries {
		from := f.From.Kind + " " + f.From.Name
		if f.From.Outside {
			from = "outside"
		}
		lines = append(lines, strings.TrimSpace(strings.Join([]string{from, "->", f.To.Kind, f.To.Name, string(f.Verdict), f.Service, time.Duration(f.Connections).String()}, " ")))
	}
	want := []string{
		"Node n2 -> StatefulSet store Allowed  2ns",
		"CronJob report -> StatefulSet store Denied shop/store 2ns",
		"Deployment web -> StatefulSet store Allowed  2ns",
		"outside -> StatefulSet store Allowed shop/store 7ns",
	}
	if strings.Join(lines, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
	}
}

// Objects may write an IPv6 address in another form than nodes do.
func TestIPv6AndAddressesBeyondTheClusterAreNamed(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}, Spec: corev1.NodeSpec{PodCIDRs: []string{"fd42:0:0:1::/64"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "2001:DB8:0:0::2"}}}}
	p := trafficPlugin(t, node, ownedPod("web-0", "n1", "fd42:0::2", "StatefulSet", "web", ""), ownedPod("store-0", "n1", "fd42::3", "StatefulSet", "store", ""),
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "store"}, Spec: corev1.ServiceSpec{ClusterIPs: []string{"FD43:0::7"}, Ports: []corev1.ServicePort{{Port: 80}}}})
	seen := metav1.Unix(1999999000, 0)
	flow := func(from string, to architecture.Destination, via string, addresses ...string) architecture.Flow {
		return architecture.Flow{From: architecture.End{Address: from}, To: to, Via: via, Addresses: addresses, Verdict: architecture.Allowed, FirstSeen: seen, LastSeen: seen, Connections: 1}
	}
	store := architecture.Destination{End: architecture.End{Address: "fd42::3"}, Port: 8080, Protocol: "TCP"}
	outside := architecture.Destination{End: architecture.End{Outside: true}, Port: 443, Protocol: "TCP"}
	a := &Attributes{User: auth.NodePart("n1"), Operation: Update, Resource: architecture.Traffics, Name: "n1",
		OldObject: trafficObject(t, "n1", architecture.Flow{From: architecture.End{Namespace: "shop", Kind: "StatefulSet", Name: "web"}, To: outside, Addresses: []string{"198.51.100.1"},
			Verdict: architecture.Allowed, FirstSeen: seen, LastSeen: seen, Connections: 1}),
		Object: trafficObject(t, "n1", flow("fd42::2", store, "[fd43::7]:80", "198.51.100.2"), flow("2001:db8::2", store, ""),
			// the second is the first, the others are forged
			flow("fd42::2", outside, "", "2001:db8::9", "2001:DB8:0::9", "fd42::3", "2001:db8::2", "fe80::1%eth0", "text"))}
	if err := p.Admit(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	var got architecture.Traffic
	if err := architecture.From(a.Object.(*unstructured.Unstructured), &got); err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range got.Entries {
		lines = append(lines, fmt.Sprintf("%s %s -> %s %q %q", f.From.Kind, f.From.Name, f.To.Name, f.Service, f.Addresses))
	}
	want := []string{`Node n2 -> store "" []`, `StatefulSet web -> store "shop/store" []`, `StatefulSet web ->  "" ["198.51.100.1" "2001:db8::9"]`}
	if !slices.Equal(lines, want) {
		t.Errorf("%q, not %q", lines, want)
	}
}

func TestANodeUpdatesOnlyItsTraffic(t *testing.T) {
	p := trafficPlugin(t)
	many := make([]architecture.Flow, architecture.MaxFlows+1)
	for name, c := range map[string]struct {
		a    Attributes
		want string
	}{
		"another node's":   {Attributes{Operation: Update, Name: "n2", Object: trafficObject(t, "n2"), OldObject: trafficObject(t, "n2")}, "of its own name"},
		"a creation":       {Attributes{Operation: Create, Name: "n1", Object: trafficObject(t, "n1")}, "can only update"},
		"a deletion":       {Attributes{Operation: Delete, Name: "n1", OldObject: trafficObject(t, "n1")}, "can only update"},
		"too many entries": {Attributes{Operation: Update, Name: "n1", Object: trafficObject(t, "n1", many...), OldObject: trafficObject(t, "n1")}, "at most 1000"},
	} {
		c.a.User, c.a.Resource = auth.NodePart("n1"), architecture.Traffics
		if err := p.Admit(t.Context(), &c.a); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
