package kubelet

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
)

func TestADeletedNodeRegistersAgainAtOnce(t *testing.T) {
	b := newBench(t, func(b *bench) {
		b.cfg.NodeAnnotations = func() map[string]string { return map[string]string{"key": "mine"} }
	})
	node := func() *corev1.Node {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
			if n, err := client.Get[*corev1.Node](t.Context(), b.api, "", "node"); err == nil {
				return n
			}
		}
		t.Fatal("the node did not register")
		return nil
	}
	first := node()
	b.create(pod("one"))
	b.await("one", "ready", ready)
	if err := client.Delete[*corev1.Node](t.Context(), b.api, "", "node", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if second := node(); second.UID == first.UID || second.Annotations["key"] != "mine" {
		t.Errorf("the node is %s, was %s, with annotations %v", second.UID, first.UID, second.Annotations)
	}
}

func TestTheNodeAgentStopsIfTheNodeBelongsToAnotherMachine(t *testing.T) {
	taken := errors.New("the node belongs to another machine")
	b := newBench(t, func(b *bench) {
		b.cfg.NodeOwned = func(n *corev1.Node) error {
			if n.Annotations["key"] == "theirs" {
				return taken
			}
			return nil
		}
	})
	b.stop()
	n, err := client.Get[*corev1.Node](t.Context(), b.api, "", "node")
	if err != nil {
		t.Fatal(err)
	}
	n = n.DeepCopy()
	metav1.SetMetaDataAnnotation(&n.ObjectMeta, "key", "theirs")
	if _, err := client.Update(t.Context(), client.Interface(b.api), n); err != nil {
		t.Fatal(err)
	}
	k, err := New(b.cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Run(t.Context()); !errors.Is(err, taken) {
		t.Errorf("error %v", err)
	}
}
