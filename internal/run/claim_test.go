package run

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/controllers/certificates"
)

func TestAMachineRecognizesItsNodeByAnyOfItsKeys(t *testing.T) {
	by := newIssuer(t, time.Hour)
	i := newIdentity(t, by, t.Output())
	j := &joined{cfg: &config.Config{NodeName: "n1"}, node: i}
	var keys []string
	for range 3 {
		if err := i.renew(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		keys = append(keys, keyHash(i.current.Load()))
	}
	again := i.again()
	if err := again.load(time.Now()); err != nil {
		t.Fatal(err)
	}
	restarted := &joined{cfg: j.cfg, node: again}
	for name, c := range map[string]struct {
		annotation string
		ours       bool
	}{
		"a node of an earlier version":           {"", true},
		"a node that knows the key":              {keys[2], true},
		"a node that knows the next key, too":    {"0123," + keys[2], true},
		"a node that came out of a snapshot":     {keys[0], true},
		"another machine's node":                 {"0123", false},
		"another machine's that is just renewed": {"0123,4567", false},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", Annotations: map[string]string{}}}
		if c.annotation != "" {
			n.Annotations[certificates.NodeKeysAnnotation] = c.annotation
		}
		for _, m := range []*joined{j, restarted} {
			err := m.owned(n)
			if (err == nil) != c.ours || err != nil && !strings.Contains(err.Error(), "kubectl delete node n1") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if got := restarted.annotations()[certificates.NodeKeysAnnotation]; got != keys[2] {
		t.Errorf("the annotation is %s, want %s", got, keys[2])
	}
	for range maxKeys {
		if err := i.renew(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(i.keys()); n != maxKeys {
		t.Errorf("%d keys are stored", n)
	}
}
