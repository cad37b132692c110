package api

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestAResponseCarriesTheFirstOfVeryManyErrors(t *testing.T) {
	kind := schema.GroupKind{Kind: "Pod"}
	path := field.NewPath("a")
	for name, c := range map[string]struct {
		n    int
		text string
		told int
	}{
		"one error":                         {1, "x", 1},
		"the maximum number of errors":      {MaxCauses, "x", MaxCauses},
		"one error too many":                {MaxCauses + 1, "x", MaxCauses + 1},
		"as many errors as fit into a body": {400_000, "x", MaxCauses + 1},
		"one long error":                    {1, strings.Repeat("x", 3<<20), 1},
		"some long errors":                  {5, strings.Repeat("x", 1<<20), 2},
		"many short errors":                 {MaxCauses, strings.Repeat("x", 1<<10), MaxCauses},
	} {
		var errs field.ErrorList
		for i := range c.n {
			errs = append(errs, field.Required(path.Index(i), fmt.Sprint(i, c.text)))
		}
		err := Invalid(kind, "p", errs)
		causes := err.Status().Details.Causes
		if len(causes) != c.told {
			t.Errorf("%s: %d causes, want %d", name, len(causes), c.told)
			continue
		}
		told := errs
		if c.told < c.n || c.told > MaxCauses {
			last := causes[c.told-1]
			if want := fmt.Sprintf("Invalid value: this and what else is wrong, %d in all, is not told", c.n-c.told+1); last.Message != want || last.Field != fmt.Sprintf("a[%d]", c.told-1) {
				t.Errorf("%s: the last cause is %.100v, want %s", name, last, want)
			}
			told = errs[:c.told-1]
		}
		if whole := apierrors.NewInvalid(kind, "p", told); len(told) == len(errs) && whole.Error() != err.Error() {
			t.Errorf("%s: the message is %.100s", name, err)
		}
		if len(errs) != c.n || errs[c.n-1].Type != field.ErrorTypeRequired {
			t.Errorf("%s: the errors were changed", name)
		}
	}
}
