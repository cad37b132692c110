package strategy

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// SetDefault writes value where the pointer is nil or holds the zero value.
func SetDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// SetPointer writes a pointer to value where the field is nil.
func SetPointer[T any](field **T, value T) {
	if *field == nil {
		*field = &value
	}
}

// RoundResources rounds quantities up to thousandths, the finest accounted unit. It writes to the
// map only where a quantity changes, because the map may be shared.
func RoundResources(list corev1.ResourceList) {
	for name, q := range list {
		if rounded := q.DeepCopy(); !rounded.RoundUp(resource.Milli) {
			list[name] = rounded
		}
	}
}
