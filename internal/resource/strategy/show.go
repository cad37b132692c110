package strategy

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/resource/columns"
)

// ShowAny is Show for rows that need only metadata.
func ShowAny(s *Strategy, specs []metav1.TableColumnDefinition, row func(obj metav1.Object, now metav1.Time) []any) *Strategy {
	s.Columns = specs
	s.Row = func(obj runtime.Object, now metav1.Time) []any { return row(obj.(metav1.Object), now) }
	return s
}

// Show sets the columns of a strategy and the function that fills them.
func Show[T runtime.Object](s *Strategy, specs []metav1.TableColumnDefinition, row func(obj T, now metav1.Time) []any) *Strategy {
	s.Columns = columns.Explain(specs, reflect.TypeFor[T]())
	s.Row = func(obj runtime.Object, now metav1.Time) []any { return row(obj.(T), now) }
	return s
}
