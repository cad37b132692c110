package cel

import (
	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/resource"
	apiservercel "k8s.io/apiserver/pkg/cel"

	"github.com/knarr-project/knarr/internal/api/bounds"
)

// The library's quantity() and isQuantity() read any text, which for some takes an hour that no cost limit sees: theirs are replaced by ones that
// read what bodies of requests may have.

func boundedQuantity() cel.EnvOption {
	return cel.Function("quantity", cel.Overload("string_to_quantity", []*cel.Type{cel.StringType}, apiservercel.QuantityType, cel.UnaryBinding(func(arg ref.Val) ref.Val {
		q, err := readQuantity(arg)
		if err != nil {
			return types.WrapErr(err)
		}
		return apiservercel.Quantity{Quantity: &q}
	})))
}

func boundedIsQuantity() cel.EnvOption {
	return cel.Function("isQuantity", cel.Overload("is_quantity_string", []*cel.Type{cel.StringType}, cel.BoolType, cel.UnaryBinding(func(arg ref.Val) ref.Val {
		_, err := readQuantity(arg)
		return types.Bool(err == nil)
	})))
}

func readQuantity(arg ref.Val) (resource.Quantity, error) {
	text, _ := arg.Value().(string)
	if err := bounds.Quantity(text); err != nil {
		return resource.Quantity{}, err
	}
	return resource.ParseQuantity(text)
}
