package kubelet

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
)

func TestANodeAgentStopsWhereTheNodeIsAnotherMachines(t *testing.T) {
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
