package peers

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/controller/controllertest"
)

func policyOf(t testing.TB, name, spec string) *networkingv1.NetworkPolicy {
	t.Helper()
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	if err := yaml.UnmarshalStrict([]byte(spec), &p.Spec); err != nil {
		t.Fatal(err)
	}
	return p
}

func running(c *controllertest.Cluster, namespace, name, node, ip string, of map[string]string) *corev1.Pod {
	pod := controllertest.Create(c, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: of},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}}},
	})
	controllertest.Retry(c, pod, func(p *corev1.Pod) {
		p.Status.Phase, p.Status.PodIP, p.Status.PodIPs = corev1.PodRunning, ip, []corev1.PodIP{{IP: ip}}
	}, "status")
	return pod
}

// wantMembers waits until the slices of a group together have the members, in any order.
func wantMembers(t *testing.T, c *controllertest.Cluster, g Group, want ...string) {
	t.Helper()
	c.Eventually(fmt.Sprintf("group %+v has %d members", g, len(want)), func() string {
		v, err := c.Client.View(t.Context(), Resource, Scope(g.ID()))
		if err != nil {
			return err.Error()
		}
		all := v.List("", nil)
		if len(all) == 0 {
			return "it is not published"
		}
		var got []string
		for _, s := range all {
			got = append(got, membersOf(s)...)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			return strings.Join(got, " ")
		}
		return ""
	})
}

func TestTheControllerPublishesAddressesOfPeers(t *testing.T) {
	c := controllertest.New(t)
	c.Serve()
	c.Run(Controller)
	controllertest.Create(c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "b"}}})
	running(c, "default", "a", "n1", "10.42.0.2", map[string]string{"app": "a"})
	b := running(c, "default", "b", "n2", "10.42.1.2", map[string]string{"app": "b"})
	running(c, "shop", "b", "n3", "10.42.2.2", map[string]string{"app": "b"})
	controllertest.Create(c, policyOf(t, "blocks", "{podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}"))
	if _, err := client.Get[*apiextensionsv1.CustomResourceDefinition](t.Context(), c.Client, "", Resource.GroupResource().String()); !apierrors.IsNotFound(err) {
		t.Errorf("a policy without selected peers made the definition: %v", err)
	}

	one := controllertest.Create(c, policyOf(t, "one", "{podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {}}, {namespaceSelector: {matchLabels: {team: b}}}]}]}"))
	groups, more := Of(one)
	if len(groups) != 2 || more != 0 {
		t.Fatalf("%d groups, %d more", len(groups), more)
	}
	home, team := groups[0], groups[1]
	wantMembers(t, c, home, "10.42.0.2", "10.42.1.2")
	wantMembers(t, c, team, "10.42.2.2")
	controllertest.Create(c, policyOf(t, "two", "{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: http}], to: [{podSelector: {matchLabels: {app: b}}}]}, {ports: [{port: http}]}]}"))
	appB := Group{Namespace: "default", PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "b"}}}
	wantMembers(t, c, appB, "10.42.1.2")
	wantMembers(t, c, appB.WithPort("http", corev1.ProtocolTCP), "10.42.1.2:8080")
	wantMembers(t, c, Everywhere().WithPort("http", corev1.ProtocolTCP), "10.42.0.2:8080", "10.42.1.2:8080", "10.42.2.2:8080")

	// Labels of pods and namespaces change, pods end.
	controllertest.Retry(c, b, func(p *corev1.Pod) { p.Labels = nil })
	wantMembers(t, c, appB)
	controllertest.Retry(c, b, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }, "status")
	wantMembers(t, c, home, "10.42.0.2")
	controllertest.Retry(c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}, func(n *corev1.Namespace) { n.Labels["team"] = "b" })
	wantMembers(t, c, team, "10.42.0.2", "10.42.2.2")

	// Groups that no policy needs are removed.
	if err := client.Delete[*networkingv1.NetworkPolicy](t.Context(), c.Client, "default", "two", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually("only the groups of policy one are left", func() string {
		v, err := c.Client.View(t.Context(), Resource, client.Scope{})
		if err != nil {
			return err.Error()
		}
		if all := v.List("", labels.Everything()); len(all) != 2 {
			return fmt.Sprintf("%d slices", len(all))
		}
		return ""
	})
}

func TestAPolicyWithTooManyPeersSaysSo(t *testing.T) {
	c := controllertest.New(t)
	c.Serve()
	c.Run(Controller)
	p := policyOf(t, "many", "{podSelector: {}, policyTypes: [Ingress], ingress: [{}]}")
	for i := range MaxGroups + 3 {
		p.Spec.Ingress[0].From = append(p.Spec.Ingress[0].From, networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"n": fmt.Sprint(i)}}})
	}
	controllertest.Create(c, p)
	c.Eventually("an event explains it", func() string {
		if all := strings.Join(c.Events.List(), "\n"); !strings.Contains(all, "103 different peers") {
			return all
		}
		return ""
	})
}

func TestFewSlicesChange(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	want := map[string]bool{}
	var have []held
	for round := range 300 {
		// A few members come and go.
		changes := 0
		for range rnd.IntN(4) {
			m := fmt.Sprint(rnd.IntN(1500))
			want[m] = !want[m]
			changes++
		}
		if round == 0 {
			for i := range 1000 {
				want[fmt.Sprint(i)] = true
			}
		}
		var list []string
		for m, in := range want {
			if in {
				list = append(list, m)
			}
		}
		got := place(have, append(list, list[0])) // a duplicate counts once
		seen, rewritten := map[string]bool{}, 0
		have = nil
		for _, h := range got {
			if len(h.members) > sliceSize {
				t.Fatalf("slice %d has %d members", h.number, len(h.members))
			}
			for _, m := range h.members {
				if seen[m] || !want[m] {
					t.Fatalf("member %s is absent or there twice", m)
				}
				seen[m] = true
			}
			if h.changed {
				rewritten++
			}
			if len(h.members) > 0 || h.number == 0 {
				have = append(have, h)
			}
		}
		if len(seen) != len(list) {
			t.Fatalf("%d members are placed, want %d", len(seen), len(list))
		}
		if round > 0 && rewritten > changes {
			t.Fatalf("%d changes rewrote %d slices", changes, rewritten)
		}
	}
	empty := place(nil, nil)
	if len(empty) != 1 || empty[0].number != 0 || !empty[0].changed {
		t.Errorf("an empty group has %+v, want one slice", empty)
	}
}
