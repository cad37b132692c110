package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/network/nettest"
	"github.com/knarr-project/knarr/internal/network/policy"
)

// podObject is a pod of node a whose status has no address yet.
func podObject(name string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels}, Spec: corev1.PodSpec{NodeName: "a"}}
}

func denyAll(selector map[string]string) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "deny"}, Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: selector}, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}}}
}

func policies(t *testing.T, c client.Interface, running bool) *policy.Agent {
	t.Helper()
	nettest.Need(t)
	cfg := policy.Config{NodeName: "a", Client: c, AllPods: true}
	if !running {
		cfg.Patience = 300 * time.Millisecond
	}
	a, err := policy.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if !running {
		return a
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return a
}

// connects reports whether a pod reaches addr. A wanted connection may take long on a busy machine.
func connects(t *testing.T, from pod, addr string, wanted bool) (ok bool) {
	t.Helper()
	patience := 300 * time.Millisecond
	if wanted {
		patience = 10 * time.Second
	}
	from.In(t, func() {
		c, err := net.DialTimeout("tcp", addr, patience)
		if ok = err == nil; ok {
			c.Close()
		}
	})
	return ok
}

func TestAPodsFirstPacketIsJudged(t *testing.T) {
	nettest.Need(t)
	objects := nettest.NewObjects(node("a", "10.42.0.0/24", "127.0.0.1"), podObject("open", nil), podObject("second", nil), podObject("closed", map[string]string{"app": "closed"}))
	isolation := policies(t, objects, true)
	n := agent(t, objects, func(c *Config) { c.Isolation = isolation })
	open, second := addPod(t, n, "open", ""), addPod(t, n, "second", "")
	open.echo(t, 80)
	if !connects(t, second, open.ip.String()+":80", true) {
		t.Error("without policies, a new pod does not connect")
	}
	// The policy is as new as can be: ADD follows at once.
	objects.Put(denyAll(map[string]string{"app": "closed"}))
	closed := addPod(t, n, "closed", "")
	if connects(t, closed, open.ip.String()+":80", false) {
		t.Error("an isolated pod connects before its status has an address")
	}
	closed.echo(t, 80)
	if connects(t, open, closed.ip.String()+":80", false) {
		t.Error("another pod connects to an isolated pod before its status has an address")
	}
	if !connects(t, second, open.ip.String()+":80", true) {
		t.Error("a pod that no policy selects does not connect")
	}
}

func TestTheNextPodOfAnAddressHasItsOwnPolicies(t *testing.T) {
	nettest.Need(t)
	objects := nettest.NewObjects(node("a", "10.42.0.0/29", "127.0.0.1"), podObject("server", nil), denyAll(map[string]string{"app": "closed"}))
	isolation := policies(t, objects, true)
	n := agent(t, objects, func(c *Config) { c.Isolation = isolation })
	server := addPod(t, n, "server", "")
	server.echo(t, 80)
	used := func() int {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.pools[0].used)
	}
	before := used()
	for i := range 12 { // more pods than addresses
		app := []string{"closed", "open"}[i%2]
		name := fmt.Sprint(app, "-", i)
		objects.Put(podObject(name, map[string]string{"app": app}))
		p := addPod(t, n, name, "")
		// The status keeps telling the address after the pod has lost it.
		stale := podObject(name, map[string]string{"app": app})
		stale.Status.PodIPs = []corev1.PodIP{{IP: p.ip.String()}}
		objects.Put(stale)
		if got := connects(t, p, server.ip.String()+":80", app == "open"); got != (app == "open") {
			t.Errorf("round %d: %s at %s connects: %v", i, name, p.ip, got)
		}
		if reply, _ := cni(t, n, "DEL", name, p.NS, ""); reply.Code != 0 {
			t.Fatalf("DEL: %s", reply.Stdout)
		}
		nettest.Eventually(t, "the address is free again", func() bool { return used() == before })
	}
}

func TestAPodDoesNotStartUntilItsPoliciesAreInForce(t *testing.T) {
	nettest.Need(t)
	objects := nettest.NewObjects(node("a", "10.42.0.0/24", "127.0.0.1"), podObject("open", nil), podObject("closed", map[string]string{"app": "closed"}), denyAll(map[string]string{"app": "closed"}))
	stopped := policies(t, objects, false)
	n := agent(t, objects, func(c *Config) { c.Isolation = stopped })
	addPod(t, n, "open", "")
	reply, _ := cni(t, n, "ADD", "closed", nettest.New(t), "")
	if reply.Code == 0 || !strings.Contains(string(reply.Stdout), "network policies select pod default/closed and are not in force after 300ms") || !strings.Contains(string(reply.Stdout), `"code":11`) {
		t.Errorf("ADD without a running agent: %s", reply.Stdout)
	}
}

// down is an API whose reads fail.
type down struct{ *nettest.Objects }

func (down) List(context.Context, schema.GroupVersionResource, string, metav1.ListOptions) (runtime.Object, error) {
	return nil, errors.New("connection refused")
}

func TestLastKnownPoliciesDecideWhileTheAPIIsDown(t *testing.T) {
	nettest.Need(t)
	objects := nettest.NewObjects(denyAll(map[string]string{"app": "closed"}))
	a := policies(t, down{objects}, true)
	attach := func(namespace string) error {
		return a.Attach(t.Context(), policy.Attachment{Key: "k", Namespace: namespace, Name: "p", Addresses: []netip.Addr{netip.MustParseAddr("10.42.0.9")}})
	}
	nettest.Eventually(t, "a pod in a namespace without policies is free", func() bool { return attach("other") == nil })
	if err := attach("default"); err == nil || !strings.Contains(err.Error(), "1 are in the namespace, and the API does not tell which apply: connection refused") {
		t.Errorf("in a namespace with a policy: %v", err)
	}
}

// behind is an API whose Views show an older state than its reads.
type behind struct {
	*nettest.Objects
	shown *nettest.Objects
}

func (b behind) View(ctx context.Context, res schema.GroupVersionResource, scope client.Scope) (client.View, error) {
	return b.shown.View(ctx, res, scope)
}

func TestAPolicyCountsBeforeTheAgentsViewShowsIt(t *testing.T) {
	nettest.Need(t)
	now := nettest.NewObjects(node("a", "10.42.0.0/24", "127.0.0.1"), podObject("open", nil), podObject("closed", map[string]string{"app": "closed"}), denyAll(map[string]string{"app": "closed"}))
	isolation := policies(t, behind{now, nettest.NewObjects()}, true)
	n := agent(t, now, func(c *Config) { c.Isolation = isolation })
	open, closed := addPod(t, n, "open", ""), addPod(t, n, "closed", "")
	open.echo(t, 80)
	if connects(t, closed, open.ip.String()+":80", false) {
		t.Error("the isolated pod connects")
	}
}
