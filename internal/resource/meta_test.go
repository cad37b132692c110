package resource

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/resource/strategy"
)

func TestWhichFinalizersAreLetThrough(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"one of no domain on a ConfigMap", "apiVersion: v1\nkind: ConfigMap\nmetadata: {finalizers: [x]}\n", []string{"metadata.finalizers[0]: Invalid value: \"x\": name is neither a standard finalizer name nor is it fully qualified"}},
		{"the garbage collector's on a ConfigMap", "apiVersion: v1\nkind: ConfigMap\nmetadata: {finalizers: [orphan, kubernetes]}\n", nil},
		{"one of no domain on a Lease", "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {finalizers: [x]}\n", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := read(t, c.manifest)
			expect(t, s.ValidateNew(obj, true), c.want...)
		})
	}
}

func TestFinalizersThatOthersMightChooseAreWarnedOf(t *testing.T) {
	obj := &metav1.ObjectMeta{Finalizers: []string{"x", "a.example", "a.example/b", "orphan", "old"}}
	want := []string{
		`metadata.finalizers: "a.example": prefer a domain-qualified finalizer name including a path (/) to avoid accidental conflicts with other finalizer writers`,
		`metadata.finalizers: "x": prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers`,
	}
	if got := strategy.FinalizerWarnings(obj, &metav1.ObjectMeta{Finalizers: []string{"old"}}); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestMetadataOfSomeKindsIsLookedAtLast(t *testing.T) {
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a budget with a name in capitals", "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: TCP}\nspec: {minAvailable: 1}\n", nil},
		{"a budget with two mistakes", "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: a/b}\nspec: {minAvailable: 101%}\n", []string{"spec.minAvailable: Invalid value: \"101%\": must not be greater than 100%"}},
		{"a budget with a bad name", "apiVersion: policy/v1\nkind: PodDisruptionBudget\nmetadata: {name: a/b}\nspec: {minAvailable: 1}\n", []string{"metadata.name: Invalid value: \"a/b\": may not contain '/'"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := read(t, c.manifest)
			expect(t, s.ValidateNew(obj, true), c.want...)
		})
	}
}
