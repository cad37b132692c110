package api

import (
	"math/rand"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/randfill"
)

// newFiller fills API objects with random values that survive a round trip.
func newFiller(rnd *rand.Rand) *randfill.Filler {
	return randfill.New().RandSource(rand.NewSource(rnd.Int63())).NilChance(.5).NumElements(1, 2).MaxDepth(12).Funcs(
		func(t *metav1.Time, c randfill.Continue) { *t = metav1.Unix(c.Int63n(1<<31), 0) },
		func(t *metav1.MicroTime, c randfill.Continue) { t.Time = metav1.Unix(c.Int63n(1<<31), 0).Time },
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(c.Int63n(1000), resource.DecimalSI)
		},
		func(f *metav1.FieldsV1, c randfill.Continue) { f.Raw = []byte(`{"f:a":{}}`) },
		func(r *runtime.RawExtension, c randfill.Continue) { r.Raw = []byte(`{"a":"b"}`) },
	)
}
