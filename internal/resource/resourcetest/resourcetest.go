// Package resourcetest holds what the tests of the kinds share: objects from manifests, expected
// errors, long lists.
package resourcetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/resource/strategy"
)

// Read decodes a manifest and applies the defaults of its kind, as the API server does before
// validation. It fills in a name, a UID and a namespace. strategyOf is resource.For; this package
// cannot import it, because tests inside the packages of the kinds use this one.
func Read(t testing.TB, strategyOf func(schema.GroupResource) *strategy.Strategy, manifest string) (runtime.Object, *strategy.Strategy) {
	t.Helper()
	obj, gvk, err := api.Codecs.UniversalDeserializer().Decode([]byte(manifest), nil, nil)
	if err != nil {
		t.Fatalf("%v: %s", err, manifest)
	}
	k, _ := api.ByKind(gvk.GroupKind())
	s := strategyOf(k.GroupResource())
	meta := obj.(metav1.Object)
	if meta.GetName() == "" {
		meta.SetName("a")
	}
	meta.SetUID("u-i-d")
	if k.Namespaced {
		meta.SetNamespace("default")
	}
	if s.Default != nil {
		s.Default(obj)
	}
	return obj, s
}

// Expect compares errors with the wanted texts, in any order. Each text is a part of one error.
func Expect(t testing.TB, errs field.ErrorList, want ...string) {
	t.Helper()
	for _, w := range want {
		found := false
		for _, e := range errs {
			found = found || strings.Contains(e.Error(), w)
		}
		if !found {
			t.Errorf("missing: %s\ngot: %v", w, errs.ToAggregate())
		}
	}
	if len(errs) != len(want) {
		t.Errorf("%d errors, want %d: %v", len(errs), len(want), errs.ToAggregate())
	}
}

// ExpectInOrder compares errors with the wanted ones: all of them, in their order.
func ExpectInOrder(t testing.TB, errs field.ErrorList, want []string) {
	t.Helper()
	var got []string
	for _, err := range errs {
		got = append(got, err.Error())
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

// ExpectWarnings compares warnings with the wanted ones: all of them, in their order.
func ExpectWarnings(t testing.TB, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Create prepares a new object and returns its errors.
func Create(s *strategy.Strategy, obj runtime.Object) field.ErrorList {
	prepareCreate(s, obj)
	return s.ValidateCreate(obj)
}

// Update prepares the object as an update of old and returns the errors of the update. Both are
// prepared as new objects first, because clients send generated labels back.
func Update(s *strategy.Strategy, obj, old runtime.Object) field.ErrorList {
	prepareCreate(s, old)
	prepareCreate(s, obj)
	if s.PrepareUpdate != nil {
		s.PrepareUpdate(obj, old)
	}
	return s.ValidateUpdate(obj, old)
}

func prepareCreate(s *strategy.Strategy, obj runtime.Object) {
	if s.PrepareCreate != nil {
		s.PrepareCreate(obj)
	}
}

// Now is the time at which tests show rows of tables.
var Now = metav1.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// Ago is the time d before Now.
func Ago(d time.Duration) metav1.Time { return metav1.NewTime(Now.Add(-d)) }

// LongList is the length of the lists that Numbered makes. A request's body has room for more. A
// check that compares each element with each would need billions of comparisons.
const LongList = 100_000

// Numbered makes a list of LongList elements.
func Numbered[T any](element func(i int) T) []T {
	out := make([]T, LongList)
	for i := range out {
		out[i] = element(i)
	}
	return out
}

// Text is a name made of a number.
func Text(i int) string { return fmt.Sprintf("n%06d", i) }

// OfType counts the errors of one type.
func OfType(errs field.ErrorList, kind field.ErrorType) (n int) {
	for _, err := range errs {
		if err.Type == kind {
			n++
		}
	}
	return n
}
