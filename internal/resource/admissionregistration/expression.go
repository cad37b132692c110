package admissionregistration

import (
	"errors"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/cel"
)

func expressionsOf(variables []admissionregistrationv1.Variable, conditions []admissionregistrationv1.MatchCondition) map[string]bool {
	known := map[string]bool{}
	for _, v := range variables {
		known[v.Expression] = true
	}
	for _, c := range conditions {
		known[c.Expression] = true
	}
	return known
}

// policyChecker compiles a policy's expressions. Expressions of the old object may use everything;
// new ones only what the previous version understands too.
type policyChecker struct {
	fresh, stored *cel.Compiler
	known         map[string]bool
}

func newPolicyChecker(scope cel.Scope, known map[string]bool) (*policyChecker, error) {
	fresh, err := cel.New(scope)
	if err != nil {
		return nil, err
	}
	// The expressions of variables and of mutating policies can use "variables" even when the
	// policy defines none.
	return (&policyChecker{fresh, fresh, known}).narrowed(scope)
}

// bareChecker returns a checker without "variables".
func bareChecker(scope cel.Scope, known map[string]bool) (*policyChecker, error) {
	fresh, err := cel.New(scope)
	if err != nil {
		return nil, err
	}
	scope.Stored = true
	stored, err := cel.New(scope)
	return &policyChecker{fresh, stored, known}, err
}

// narrowed returns a checker with the same variables for another scope.
func (c *policyChecker) narrowed(scope cel.Scope) (*policyChecker, error) {
	fresh, err := c.fresh.In(scope)
	if err != nil {
		return nil, err
	}
	scope.Stored = true
	stored, err := c.stored.In(scope)
	return &policyChecker{fresh, stored, c.known}, err
}

func (c *policyChecker) check(expression string, returns cel.Types, at *field.Path) field.ErrorList {
	compiler := c.fresh
	if c.known[expression] {
		compiler = c.stored
	}
	if p := compiler.Compile(expression, returns); p.Err != nil {
		return field.ErrorList{field.Invalid(at, expression, p.Err.Error())}
	}
	return nil
}

func (c *policyChecker) declare(v *admissionregistrationv1.Variable, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch {
	case strings.TrimSpace(v.Name) == "":
		errs = append(errs, field.Required(at.Child("name"), "name is not specified"))
	case !cel.IsIdentifier(v.Name):
		errs = append(errs, field.Invalid(at.Child("name"), v.Name, "must be a valid CEL identifier"))
	}
	if strings.TrimSpace(v.Expression) == "" {
		return append(errs, field.Required(at.Child("expression"), "expression is not specified"))
	}
	program, err := c.fresh.Declare(v.Name, v.Expression)
	stored, storedErr := c.stored.Declare(v.Name, v.Expression)
	if err := errors.Join(err, storedErr); err != nil {
		return append(errs, field.InternalError(at, err))
	}
	if c.known[v.Expression] {
		program = stored
	}
	if program.Err != nil {
		errs = append(errs, field.Invalid(at.Child("expression"), v.Expression, program.Err.Error()))
		c.fresh.Assume(v.Name) // so that expressions that use it are not reported as well
		c.stored.Assume(v.Name)
	}
	return errs
}

// compiles checks a single boolean expression.
func compiles(scope cel.Scope, expression string, at *field.Path) field.ErrorList {
	compiler, err := cel.New(scope)
	if err != nil {
		return field.ErrorList{field.InternalError(at, err)}
	}
	if p := compiler.Compile(expression, cel.Bool); p.Err != nil {
		return field.ErrorList{field.Invalid(at, expression, p.Err.Error())}
	}
	return nil
}
