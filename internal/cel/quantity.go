package cel

import (
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	"github.com/knarr-project/knarr/internal/api/bounds"
)

// Environments returns the environments of the expression library with limited quantities: one for
// new and one for stored expressions. The library's own environments do not change.
//
// The library's quantity() and isQuantity() read any text, and some texts take hours:
// "1e-1000000000" is computed as a number of a billion digits. No cost limit counts this, and no
// context interrupts it. Quantities in expressions therefore have the limits of quantities in
// request bodies.
func Environments() *environment.EnvSet { return bounded() }

var bounded = sync.OnceValue(func() *environment.EnvSet {
	set, err := shared().Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 28), // as library.Quantity
		EnvOptions:        []cel.EnvOption{cel.FunctionDecls(quantityFunctions()...)},
	})
	if err != nil {
		panic(fmt.Sprintf("bound the library's quantities: %v", err)) // depends on no input
	}
	return set
})

func shared() *environment.EnvSet {
	return environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion())
}

// BoundSharedEnvironments limits quantities in the environments that all packages of the process
// share. Only a process of knarr calls it, before it starts anything: the libraries that compile
// the rules of custom resources and the selectors of devices take no other environment (ADR 42).
var BoundSharedEnvironments = sync.OnceFunc(func() {
	for _, env := range []*cel.Env{shared().NewExpressionsEnv(), shared().StoredExpressionsEnv()} {
		for _, f := range quantityFunctions() {
			if err := env.Functions()[f.Name()].AddOverload(f.OverloadDecls()[0]); err != nil {
				panic(fmt.Sprintf("the library's %s() has changed: %v", f.Name(), err))
			}
		}
	}
})

// quantityFunctions returns the functions that read a quantity, with the library's names and
// overload identifiers.
func quantityFunctions() []*decls.FunctionDecl {
	return []*decls.FunctionDecl{
		ofText("quantity", "string_to_quantity", apiservercel.QuantityType, func(text string) ref.Val {
			q, err := readQuantity(text)
			if err != nil {
				return types.WrapErr(err)
			}
			return apiservercel.Quantity{Quantity: &q}
		}),
		ofText("isQuantity", "is_quantity_string", types.BoolType, func(text string) ref.Val {
			_, err := readQuantity(text)
			return types.Bool(err == nil)
		}),
	}
}

func ofText(name, overload string, result *types.Type, fn func(text string) ref.Val) *decls.FunctionDecl {
	f, err := decls.NewFunction(name, decls.Overload(overload, []*types.Type{types.StringType}, result, decls.UnaryBinding(func(arg ref.Val) ref.Val {
		text, _ := arg.Value().(string)
		return fn(text)
	})))
	if err != nil {
		panic(err) // depends on no input
	}
	return f
}

func readQuantity(text string) (resource.Quantity, error) {
	if err := bounds.Quantity(text); err != nil {
		return resource.Quantity{}, err
	}
	return resource.ParseQuantity(text)
}
