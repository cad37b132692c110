package policy

import (
	"errors"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/knarr-project/knarr/internal/cel"
)

// MaxChecked limits the kinds that a policy is checked against.
const MaxChecked = 10

// Kind is a kind and its schema.
type Kind struct {
	schema.GroupVersionKind
	Schema *spec.Schema
}

// declare returns the kind's type under the given name. The name must differ from those of
// variables, because type names are values too.
func (k *Kind) declare(name string) *apiservercel.DeclType {
	if k == nil || k.Schema == nil {
		return nil
	}
	t := openapi.SchemaDeclType(k.Schema, true)
	if t == nil {
		return nil
	}
	return t.MaybeAssignTypeName(name)
}

// CheckTypes compiles a policy's expressions for each kind that it matches, and returns a warning
// for each type error. params may be nil: then parameters have any type.
func CheckTypes(p *admissionregistrationv1.ValidatingAdmissionPolicy, kinds []Kind, params *Kind) ([]admissionregistrationv1.ExpressionWarning, error) {
	type checked struct {
		field, expression string
		warnings          []string
	}
	var all []checked
	for i, v := range p.Spec.Validations {
		all = append(all, checked{field: fmt.Sprintf("spec.validations[%d].expression", i), expression: v.Expression})
		if v.MessageExpression != "" {
			all = append(all, checked{field: fmt.Sprintf("spec.validations[%d].messageExpression", i), expression: v.MessageExpression})
		}
	}
	for i := range kinds {
		compiler, err := typedCompiler(p, &kinds[i], params)
		if err != nil {
			return nil, err
		}
		if compiler == nil {
			continue
		}
		for j := range all {
			program := compiler.Compile(all[j].expression, cel.Anything)
			if program.Err == nil {
				continue
			}
			text := program.Err
			if inner := errors.Unwrap(text); inner != nil {
				text = inner
			}
			all[j].warnings = append(all[j].warnings, fmt.Sprintf("%s: %s\n", kinds[i].GroupVersionKind, text))
		}
	}
	var out []admissionregistrationv1.ExpressionWarning
	for _, c := range all {
		if len(c.warnings) > 0 {
			out = append(out, admissionregistrationv1.ExpressionWarning{FieldRef: c.field, Warning: strings.Join(c.warnings, "\n")})
		}
	}
	return out, nil
}

// typedCompiler returns a compiler that knows the types of a kind and the policy's variables. nil
// if the kind has no fields to check.
func typedCompiler(p *admissionregistrationv1.ValidatingAdmissionPolicy, kind, params *Kind) (*cel.Compiler, error) {
	object := kind.declare("checked_object")
	if object == nil {
		return nil, nil
	}
	compiler, err := cel.NewTyped(cel.Scope{Params: p.Spec.ParamKind != nil, Authorizer: true, Stored: true},
		cel.Typed{Object: object, Params: params.declare("checked_params")})
	if err != nil {
		return nil, err
	}
	for _, v := range p.Spec.Variables {
		// A type error of a variable is reported where an expression uses the variable.
		program, err := compiler.Declare(v.Name, v.Expression)
		if err != nil {
			return nil, err
		}
		if program.Err != nil {
			compiler.Assume(v.Name)
		}
	}
	return compiler, nil
}
