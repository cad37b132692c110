package admission

import (
	"errors"
	"testing"

	"github.com/knarr-project/knarr/internal/cel"
)

// Upstream's tests of webhooks expect this text.
func TestCostlyConditionsHaveTheErrorOfPolicies(t *testing.T) {
	compiler, err := cel.New(cel.Scope{})
	if err != nil {
		t.Fatal(err)
	}
	programs := []cel.Program{compiler.Compile("[1, 2, 3].all(x, x < 4)", cel.Bool)}
	if wanted, err := match(compiler.Evaluate(t.Context(), cel.Input{}, 1), programs); wanted || !errors.Is(err, cel.ErrBudget) {
		t.Errorf("got %t, %v, want %v", wanted, err, cel.ErrBudget)
	}
}
