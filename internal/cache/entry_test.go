package cache

import (
	"fmt"
	"strings"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// within reports whether a string is a substring of the stored bytes in memory.
func within(s string, stored []byte) bool {
	at, from := uintptr(unsafe.Pointer(unsafe.StringData(s))), uintptr(unsafe.Pointer(unsafe.SliceData(stored)))
	return at >= from && at+uintptr(len(s)) <= from+uintptr(len(stored))
}

// If each search started at the beginning, or ran to the end in vain, this test would take minutes.
func TestManyPartsAreFoundInOnePass(t *testing.T) {
	const n = 200_000
	text := func(i int) string { return fmt.Sprintf("a-label-%06d", i) }
	var all strings.Builder
	var labels, others Pairs
	var owners []metav1.ManagedFieldsEntry
	for i := range n {
		all.WriteString(text(i) + "=v" + text(i) + ";")
		labels = append(labels, Pair{text(i), "v" + text(i)})
		others = append(others, Pair{"another" + text(i), "v"})
	}
	for i := range n {
		all.WriteString("{" + text(i) + "}")
		owners = append(owners, metav1.ManagedFieldsEntry{FieldsV1: &metav1.FieldsV1{Raw: []byte("{" + text(i) + "}")}})
	}
	e := &Entry{stored: []byte(all.String()), Header: Header{UID: text(7), Labels: labels, Fields: Pairs{{text(9), text(8)}}}}
	e.shareStored()
	for i, l := range e.Labels {
		if l.Name != text(i) || l.Value != "v"+text(i) || !within(l.Name, e.stored) || !within(l.Value, e.stored) {
			t.Fatalf("label %d is %v, a string of its own or another", i, l)
		}
	}
	for _, s := range []string{e.UID, e.Fields[0].Name, e.Fields[0].Value} {
		if !within(s, e.stored) {
			t.Errorf("%s is a string of its own", s)
		}
	}
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{ManagedFields: owners}}
	e.shareOwners(obj)
	for i, owner := range obj.ManagedFields {
		if raw := string(owner.FieldsV1.Raw); raw != "{"+text(i)+"}" || !within(unsafe.String(&owner.FieldsV1.Raw[0], len(raw)), e.stored) {
			t.Fatalf("owner %d has %s, bytes of its own or others", i, raw)
		}
	}
	e.Labels = others
	e.shareStored()
	if e.Labels[n-1].Name != "another"+text(n-1) {
		t.Errorf("the label that is not stored is %v", e.Labels[n-1])
	}
}
