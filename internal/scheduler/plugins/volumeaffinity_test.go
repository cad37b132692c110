package plugins

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	volumehelper "k8s.io/component-helpers/storage/volume"
)

// Candidates and compiled affinity must give the answers of upstream's published helpers, which
// look at all volumes.
func TestIndexedVolumesAreTheSameAsAllVolumes(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	term := func() (term corev1.NodeSelectorTerm) {
		for range r.IntN(3) {
			term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{
				Key: one("host", "zone"), Operator: corev1.NodeSelectorOperator(one("In", "In", "In", "NotIn")), Values: []string{one("a", "b"), one("a", "b", "c")},
			})
		}
		if r.IntN(8) == 0 {
			term.MatchFields = []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{one("a", "b")}}}
		}
		return term
	}
	found := 0
	for round := range 3000 {
		claims := []*corev1.PersistentVolumeClaim{}
		for i := range 2 {
			c := &corev1.PersistentVolumeClaim{}
			c.Namespace, c.Name, c.UID = "ns", fmt.Sprint("claim", i), types.UID(fmt.Sprint(i))
			claims = append(claims, c)
		}
		var volumes []*corev1.PersistentVolume
		for i := range r.IntN(8) {
			v := &corev1.PersistentVolume{}
			v.Name, v.Status.Phase = fmt.Sprint("v", i), corev1.VolumeAvailable
			if r.IntN(5) == 0 {
				v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: one("claim0", "claim1", "other")}
			}
			if r.IntN(4) > 0 {
				required := &corev1.NodeSelector{}
				for range 1 + r.IntN(5)/4 {
					required.NodeSelectorTerms = append(required.NodeSelectorTerms, term())
				}
				v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: required}
			}
			volumes = append(volumes, v)
		}
		candidates := newVolumeCandidates(volumes, claims)
		for _, host := range []string{"a", "b", "c"} {
			node := &corev1.Node{}
			node.Name, node.Labels = host, map[string]string{"host": host}
			if r.IntN(2) == 0 {
				node.Labels["zone"] = one("a", "b")
			}
			for _, v := range volumes {
				if got, want := reachOf(v).includes(node), volumehelper.CheckNodeAffinity(v, node.Labels) == nil; got != want {
					t.Fatalf("round %d: %+v includes %v: %v, want %v", round, v.Spec.NodeAffinity, node.Labels, got, want)
				}
			}
			for _, claim := range claims {
				want, _ := volumehelper.FindMatchingVolume(claim, volumes, node, nil, true, true)
				got, _ := volumehelper.FindMatchingVolume(claim, candidates.on(node), node, nil, true, true)
				if got != want {
					t.Fatalf("round %d: node %v gives claim %s %v, want %v", round, node.Labels, claim.Name, got, want)
				}
				if want != nil {
					found++
				}
			}
		}
	}
	if found == 0 {
		t.Error("no claim got a volume")
	}
}
