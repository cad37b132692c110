package dra

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestManyBindingConditionsAreNotComparedEachWithEach(t *testing.T) {
	names := resourcetest.Numbered(resourcetest.Text)
	errs := validateBindingConditions(append(names, names[0]), append(names, names[1]), field.NewPath("x"))
	if n := resourcetest.OfType(errs, field.ErrorTypeDuplicate); n != 2 {
		t.Errorf("%d duplicates, want 2", n)
	}
}
