package relations

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/knarr-project/knarr/internal/architecture"
)

// seenOf returns a Traffic with a connection of each pair of ends.
func seenOf(t *testing.T, pairs ...[2]architecture.End) runtime.Object {
	t.Helper()
	now := metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	traffic := architecture.Traffic{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	for _, p := range pairs {
		traffic.Entries = append(traffic.Entries, architecture.Flow{
			From: p[0], To: architecture.Destination{End: p[1], Port: 80, Protocol: "TCP"}, Verdict: architecture.Allowed, FirstSeen: now, LastSeen: now, Connections: 1,
		})
	}
	u, err := traffic.Unstructured()
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func seenEdges(g *Graph) (all []string) {
	for i := range g.Relations {
		if r := &g.Relations[i]; r.Has(Seen) {
			all = append(all, fmt.Sprintf("%s → %s", r.From, r.To))
		}
	}
	return all
}

func TestConnectionsOfRemovedObjectsAreNotShown(t *testing.T) {
	web, worker := architecture.End{Namespace: "shop", Kind: "Deployment", Name: "web"}, architecture.End{Namespace: "shop", Kind: "Deployment", Name: "worker"}
	pod := func(namespace, name string) architecture.End {
		return architecture.End{Namespace: namespace, Kind: "Pod", Name: name}
	}
	traffic := seenOf(t, [2]architecture.End{web, worker}, [2]architecture.End{pod("shop", "gone"), web}, [2]architecture.End{web, pod("other", "lives")},
		[2]architecture.End{pod("other", "gone"), web}, [2]architecture.End{{Namespace: "shop", Kind: "Rollout", Name: "custom"}, web},
		[2]architecture.End{{Namespace: "shop", Kind: "ReplicaSet", Name: "gone"}, web})
	lives := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "lives"}}
	for _, namespace := range []string{"", "shop"} {
		o, unread, err := Read(t.Context(), fake.NewClientset(append(shop(t), lives)...), custom(t, traffic), namespace)
		if err != nil || len(unread) > 0 {
			t.Fatal(err, unread)
		}
		g := Derive(o)
		if got, want := seenEdges(g), []string{"shop/custom → shop/web", "shop/web → other/lives", "shop/web → shop/worker"}; !slices.Equal(got, want) {
			t.Errorf("namespace %q: %v, not %v", namespace, got, want)
		}
		var text bytes.Buffer
		if err := g.Text(&text, false); err != nil {
			t.Fatal(err)
		}
		if line := "connections of removed objects are not shown: Pod other/gone, Pod shop/gone, ReplicaSet shop/gone\n"; !strings.Contains(text.String(), line) {
			t.Errorf("namespace %q:\n%s", namespace, text.String())
		}
	}
}

// A kind that cannot be read may have the object.
func TestAnEndThatCannotBeReadStays(t *testing.T) {
	web := architecture.End{Namespace: "shop", Kind: "Deployment", Name: "web"}
	c := fake.NewClientset(shop(t)...)
	c.PrependReactor("*", "pods", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("forbidden") })
	o, _, err := Read(t.Context(), c, custom(t, seenOf(t, [2]architecture.End{{Namespace: "shop", Kind: "Pod", Name: "hidden"}, web})), "")
	if err != nil {
		t.Fatal(err)
	}
	if got := seenEdges(Derive(o)); !slices.Equal(got, []string{"shop/hidden → shop/web"}) || len(o.Gone) > 0 {
		t.Error(got, o.Gone)
	}
}
