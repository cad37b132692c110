package apiserver

import (
	"encoding/json"
	"math/rand"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver/verb"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// TestMergeObjectEqualsMergingTheDocument compares MergeObject with a merge of the JSON document.
func TestMergeObjectEqualsMergingTheDocument(t *testing.T) {
	patches := []struct {
		patch string
		short bool // MergeObject handles it
	}{
		{`{}`, true},
		{`{"metadata":{"labels":{"a":"b"}}}`, true},
		{`{"metadata":{"labels":null,"annotations":{"x":null,"y":"z"}}}`, true},
		{`{"metadata":null}`, true},
		{`{"metadata":{"managedFields":[]}}`, true},
		{`{"metadata":{"managedFields":[{}]},"spec":{"nodeName":"n"}}`, true},
		{`{"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"100m"}}}]}}`, true},
		{`{"spec":null,"status":{"phase":"Running"}}`, true},
		{`{"status":{"startTime":"2026-01-02T03:04:05Z","podIP":null}}`, true},
		{`{"metadata":{"labels":{"a":null},"ownerReferences":null,"deletionGracePeriodSeconds":3}}`, true},
		{`{"metadata":{"labels":{}},"spec":{"securityContext":{},"nodeSelector":{},"overhead":{"cpu":null}}}`, true},
		{`{"metadata":{"creationTimestamp":null,"deletionTimestamp":"2026-01-02T03:04:05Z"}}`, true},
		{`{"spec":{"securityContext":{"runAsUser":1,"seLinuxOptions":{"level":"s0","role":null},"sysctls":[]},"overhead":{"cpu":"1000m","memory":2}}}`, true},
		{`{"spec":{"affinity":{"nodeAffinity":null,"podAffinity":{}},"hostNetwork":true,"priority":7,"tolerations":[{"key":"a","tolerationSeconds":1}]}}`, true},
		{`{"spec":{"dnsConfig":{"searches":["a","<b>"]},"schedulerName":"\u003cx\u003e"}}`, true},
		{`{"spec":{"containers":[{"name":"c","image":null}]}}`, false},
		{`{"spec":{"priority":7.0}}`, false},
		{`{"spec":{"priority":"7"}}`, false},
		{`{"spec":{"overhead":{"cpu":{}}}}`, false},
		{`{"spec":{"nodeName":{}}}`, false},
		{`{"spec":{"tolerations":{"0":{}}}}`, false},
		{`{"spec":{"securityContext":{"unknown":1}}}`, false},
		{`{"metadata":{"labels":{"a":{"b":"c"}}}}`, false},
		{`{"metadata":{"labels":{"a":1}}}`, false},
		{`{"metadata":{"creationTimestamp":"yesterday"}}`, false},
		{`{"kind":"Pod","metadata":{"labels":{"a":"b"}}}`, false},
		{`{"kind":"Other"}`, false},
		{`{"unknown":1}`, false},
		{`{"Metadata":{"labels":{"a":"b"}}}`, false},
		{`{"metadata":{"unknown":1}}`, false},
		{`{"metadata":{"labels":{"a":"b"},"labels":{"c":"d"}}}`, false},
		{`{"metadata":{"labels":[]}}`, false},
		{`{"spec":"text"}`, false},
		{`null`, false},
		{`[]`, false},
		{`text`, false},
	}
	s := newTestServer(t)
	e, _ := s.endpoints.Find(corev1.SchemeGroupVersion.WithResource("pods"))
	op := s.engine.InternalOperation(e, "default", "x")
	fill := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.New(rand.NewSource(1)), serializer.NewCodecFactory(api.Scheme))
	for range 20 {
		var filled corev1.Pod
		fill.Fill(&filled)
		wire.ClearKind(&filled)
		stored, err := e.Codec.Encode(&filled)
		if err != nil {
			t.Fatal(err)
		}
		old, err := e.Codec.Decode(stored, 1) // as in the cache
		if err != nil {
			t.Fatal(err)
		}
		before := old.DeepCopyObject()
		for _, c := range patches {
			p := verb.PatchRequest{Kind: types.MergePatchType, Data: []byte(c.patch), Validation: metav1.FieldValidationStrict}
			got, ok := verb.MergeObject(old, p)
			if ok != c.short {
				t.Errorf("%s: taken: %v, want %v", c.patch, ok, c.short)
			}
			if !ok {
				continue
			}
			whole, err := json.Marshal(old)
			if err != nil {
				t.Fatal(err)
			}
			doc, err := verb.ApplyMergePatch(wire.WithTypeMeta(nil, e.GVK, whole), p)
			if err != nil {
				t.Fatal(err)
			}
			want, err := op.DecodePatched(doc, old, e.GVK, p)
			if err != nil {
				t.Fatal(err)
			}
			mine, _ := json.Marshal(got)
			reference, _ := json.Marshal(want)
			if string(mine) != string(reference) {
				t.Errorf("%s:\n%s\nwant\n%s", c.patch, mine, reference)
			}
			mineStored, _ := e.Codec.Encode(got)
			wantStored, _ := e.Codec.Encode(want)
			if string(mineStored) != string(wantStored) {
				t.Errorf("%s: it is stored in another way", c.patch)
			}
		}
		beforeJSON, _ := json.Marshal(before)
		oldJSON, _ := json.Marshal(old)
		if string(beforeJSON) != string(oldJSON) {
			t.Error("the stored object was changed")
		}
	}
}
