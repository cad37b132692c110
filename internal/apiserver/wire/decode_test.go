package wire

import (
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	policyv1beta1 "k8s.io/api/policy/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestBetaEvictionIsDecodedFromProtobuf(t *testing.T) {
	raw, err := MarshalProtobuf(&policyv1beta1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	obj, err := decodeProtobuf(Envelope(policyv1beta1.SchemeGroupVersion.WithKind("Eviction"), raw), policyv1.SchemeGroupVersion.WithKind("Eviction"))
	if e, ok := obj.(*policyv1.Eviction); err != nil || !ok || e.Name != "a" {
		t.Errorf("got %T, %v", obj, err)
	}
}
