package cel

import (
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/resource"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/knarr-project/knarr/internal/api/bounds"
)

// BoundQuantities replaces the library's quantity() and isQuantity(), in all environments of this process, by ones that read what bodies of requests may
// have: theirs read any text, which for some takes an hour that no cost limit sees. Rules of custom resources are compiled by the library in an
// environment that it gives nobody, so that the functions of the one that all are made from are replaced. To be called before expressions are compiled; the
// API server does when it is made, and the scheduler, which asks devices what selectors say of them.
var BoundQuantities = sync.OnceFunc(func() {
	base := environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
	for _, env := range []*cel.Env{base.NewExpressionsEnv(), base.StoredExpressionsEnv()} {
		for name, overload := range map[string]*decls.OverloadDecl{"quantity": boundedQuantity(), "isQuantity": boundedIsQuantity()} {
			if err := env.Functions()[name].AddOverload(overload); err != nil {
				panic(fmt.Sprintf("the library's %s() is another one: %v", name, err))
			}
		}
	}
})

func boundedQuantity() *decls.OverloadDecl {
	return overload("string_to_quantity", apiservercel.QuantityType, func(arg ref.Val) ref.Val {
		q, err := readQuantity(arg)
		if err != nil {
			return types.WrapErr(err)
		}
		return apiservercel.Quantity{Quantity: &q}
	})
}

func boundedIsQuantity() *decls.OverloadDecl {
	return overload("is_quantity_string", types.BoolType, func(arg ref.Val) ref.Val {
		_, err := readQuantity(arg)
		return types.Bool(err == nil)
	})
}

// overload is a function of a text, under the name that the library gives it.
func overload(id string, result *types.Type, fn func(ref.Val) ref.Val) *decls.OverloadDecl {
	f, err := decls.NewFunction(id, decls.Overload(id, []*types.Type{types.StringType}, result, decls.UnaryBinding(fn)))
	if err != nil {
		panic(err) // no input has any part in it
	}
	return f.OverloadDecls()[0]
}

func readQuantity(arg ref.Val) (resource.Quantity, error) {
	text, _ := arg.Value().(string)
	if err := bounds.Quantity(text); err != nil {
		return resource.Quantity{}, err
	}
	return resource.ParseQuantity(text)
}
