package ownership

import (
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestSameAgreesWithDeepEqual(t *testing.T) {
	seven, other := int64(7), int64(7)
	objects := []corev1.ConfigMap{
		{},
		{ObjectMeta: metav1.ObjectMeta{Name: "a", Generation: 1}, Immutable: new(bool)},
		{ObjectMeta: metav1.ObjectMeta{Name: "a", Generation: 2}, Immutable: new(bool)},
		{ObjectMeta: metav1.ObjectMeta{Name: "b", Labels: map[string]string{}, Finalizers: []string{}, DeletionGracePeriodSeconds: &seven}, BinaryData: map[string][]byte{}},
		{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": ""}, Finalizers: []string{"a"}, DeletionGracePeriodSeconds: &other}, Data: map[string]string{"a": "b"}},
		{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"b": ""}, Finalizers: []string{"b"}}, Data: map[string]string{"a": "c"}, BinaryData: map[string][]byte{"a": nil}},
		{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.Unix(1, 0)}, BinaryData: map[string][]byte{"a": {}}},
	}
	compare := func(a, b reflect.Value) {
		for i := range a.NumField() {
			if got, want := same(a.Field(i), b.Field(i)), reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()); got != want {
				t.Errorf("%s of %v and %v: %v, want %v", a.Type().Field(i).Name, a.Field(i), b.Field(i), got, want)
			}
		}
	}
	for i := range objects {
		for j := range objects {
			x, y := objects[i].DeepCopy(), objects[j].DeepCopy()
			compare(reflect.ValueOf(x).Elem(), reflect.ValueOf(y).Elem())
			compare(reflect.ValueOf(&x.ObjectMeta).Elem(), reflect.ValueOf(&y.ObjectMeta).Elem())
		}
	}
}
