package strategy

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// On adapts a function of one Go type to the signature in Strategy. An object of another type is a
// programming error: it panics.
func On[T runtime.Object](f func(T)) func(runtime.Object) {
	return func(obj runtime.Object) { f(obj.(T)) }
}

// OnBoth adapts a function of a new and an old object of one Go type.
func OnBoth[T runtime.Object](f func(obj, old T)) func(obj, old runtime.Object) {
	return func(obj, old runtime.Object) { f(obj.(T), old.(T)) }
}

// Checks adapts a validation of one Go type to the signature in Strategy.
func Checks[T runtime.Object](f func(T) field.ErrorList) func(runtime.Object) field.ErrorList {
	return func(obj runtime.Object) field.ErrorList { return f(obj.(T)) }
}

// ChecksBoth adapts a validation of a new and an old object of one Go type.
func ChecksBoth[T runtime.Object](f func(obj, old T) field.ErrorList) func(obj, old runtime.Object) field.ErrorList {
	return func(obj, old runtime.Object) field.ErrorList { return f(obj.(T), old.(T)) }
}

// Warns adapts the warnings of one Go type to the signature in Strategy.
func Warns[T runtime.Object](f func(T) []string) func(obj, old runtime.Object) []string {
	return func(obj, _ runtime.Object) []string { return f(obj.(T)) }
}

// WarnsOfNew is Warns for creates alone.
func WarnsOfNew[T runtime.Object](f func(T) []string) func(obj, old runtime.Object) []string {
	return func(obj, old runtime.Object) []string {
		if old != nil {
			return nil
		}
		return f(obj.(T))
	}
}
