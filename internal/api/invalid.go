package api

import (
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// MaxCauses are the most things of an object that its client is told are wrong.
	MaxCauses = 1000
	// maxCausesBytes are the most that they say together, the first one aside.
	maxCausesBytes = 2 << 20
)

// Invalid is the answer (422) that says what is wrong with an object. The library joins messages to one by writing all of them again for each: for 400,000 bad
// finalizers, which fit into one request, it would copy terabytes. So only so many are told.
func Invalid(kind schema.GroupKind, name string, errs field.ErrorList) *apierrors.StatusError {
	return apierrors.NewInvalid(kind, name, firstOf(errs))
}

// Together is the error that what is wrong is one by one; of very much, the first.
func Together(errs field.ErrorList) error { return firstOf(errs).ToAggregate() }

// firstOf are the first of many errors, the last of them saying how many there are.
func firstOf(errs field.ErrorList) field.ErrorList {
	size := 0
	for i, err := range errs {
		size += len(err.Error())
		if i >= MaxCauses || i > 0 && size > maxCausesBytes {
			more := &field.Error{Type: field.ErrorTypeInvalid, Field: err.Field, BadValue: field.OmitValueType{}, Detail: fmt.Sprintf("this and what else is wrong, %d in all, is not told", len(errs)-i)}
			return append(errs[:i:i], more)
		}
	}
	return errs
}
