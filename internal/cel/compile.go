package cel

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/environment"
	"k8s.io/apiserver/pkg/cel/lazy"
	"k8s.io/apiserver/pkg/cel/library"
	"k8s.io/apiserver/pkg/cel/mutation"
)

// Scope selects the variables of expressions besides object, oldObject, request and
// namespaceObject.
type Scope struct {
	// Params adds params. Authorizer adds authorizer and authorizer.requestResource.
	Params, Authorizer bool
	// Patches adds the types of mutations: Object, JSONPatch and their helpers.
	Patches bool
	// Stored is for expressions accepted earlier, perhaps by a newer server: they may use
	// everything. New expressions may use only what the previous version understands too.
	Stored bool
}

// Typed declares the types of object and params for type checking; nil means dynamic.
type Typed struct {
	Object, Params *apiservercel.DeclType
}

// Types are the allowed result types of an expression.
type Types []*cel.Type

// Result types of the API's expressions.
var (
	Bool        = Types{cel.BoolType}
	String      = Types{cel.StringType}
	StringOrNot = Types{cel.StringType, cel.NullType}
	Anything    = Types{cel.AnyType}
	Object      = Types{types.NewObjectType(mutation.ObjectTypeName)}
	JSONPatch   = Types{types.NewListType(types.NewObjectType(mutation.JSONPatchTypeName))}
)

// Program is a compiled expression, or the error of its compilation.
type Program struct {
	Expression string
	Err        error
	program    cel.Program
	// Type is the result type of the expression.
	Type *cel.Type
}

// Compiler compiles expressions of one scope. It is not safe for concurrent use until its variables
// are declared.
type Compiler struct {
	// Metrics time the compiler and its evaluations; nil turns this off.
	Metrics *Metrics

	env       *cel.Env
	variables *variables
	programs  []namedProgram
}

type namedProgram struct {
	name string
	Program
}

var environments sync.Map // of Scope to *cel.Env

// New returns a compiler. The environment of each scope is made once, at its first use.
func New(scope Scope) (*Compiler, error) {
	if env, ok := environments.Load(scope); ok {
		return &Compiler{env: env.(*cel.Env)}, nil
	}
	env, err := newEnvironment(scope, Typed{})
	if err != nil {
		return nil, err
	}
	environments.Store(scope, env)
	return &Compiler{env: env}, nil
}

// NewTyped returns a compiler that knows the given types.
func NewTyped(scope Scope, typed Typed) (*Compiler, error) {
	env, err := newEnvironment(scope, typed)
	return &Compiler{env: env}, err
}

func newEnvironment(scope Scope, typed Typed) (*cel.Env, error) {
	request, namespace := requestType(), namespaceType()
	roots := []*apiservercel.DeclType{request, namespace}
	declare := func(t *apiservercel.DeclType) *cel.Type {
		if t == nil {
			return cel.DynType
		}
		roots = append(roots, t)
		return t.CelType()
	}
	object := declare(typed.Object)
	options := []cel.EnvOption{
		cel.Variable("object", object), cel.Variable("oldObject", object),
		cel.Variable("request", request.CelType()), cel.Variable("namespaceObject", namespace.CelType()),
	}
	if scope.Params {
		options = append(options, cel.Variable("params", declare(typed.Params)))
	}
	if scope.Authorizer {
		options = append(options, cel.Variable("authorizer", library.AuthorizerType), cel.Variable("authorizer.requestResource", library.ResourceCheckType))
	}
	if scope.Patches {
		options = append(options, common.ResolverEnvOption(&mutation.DynamicTypeResolver{}), environment.UnversionedLib(library.JSONPatch))
	}
	set, err := Environments().Extend(environment.VersionedOptions{
		IntroducedVersion: version.MajorMinor(1, 0), EnvOptions: options,
	})
	if err != nil {
		return nil, fmt.Errorf("CEL environment: %w", err)
	}
	env := set.NewExpressionsEnv()
	if scope.Stored {
		env = set.StoredExpressionsEnv()
	}
	provider, err := apiservercel.NewDeclTypeProvider(roots...).WithTypeProvider(env.CELTypeProvider())
	if err == nil {
		env, err = env.Extend(cel.CustomTypeProvider(provider))
	}
	if err != nil {
		return nil, fmt.Errorf("CEL environment: %w", err)
	}
	return env, nil
}

// Compile compiles an expression that returns one of the types.
func (c *Compiler) Compile(expression string, returns Types) Program {
	defer c.Metrics.compiled(time.Now())
	p := Program{Expression: expression}
	ast, issues := c.env.Compile(expression)
	if err := issues.Err(); err != nil {
		p.Err = fmt.Errorf("compilation failed: %w", err)
		return p
	}
	p.Type = ast.OutputType()
	if !returnsOne(p.Type, returns) {
		p.Err = fmt.Errorf("must evaluate to %s but got %s", typeNames(returns), p.Type)
		return p
	}
	program, err := c.env.Program(ast, cel.InterruptCheckFrequency(celconfig.CheckFrequency))
	if err != nil {
		p.Err = fmt.Errorf("program instantiation failed: %w", err)
		return p
	}
	p.program = program
	return p
}

func returnsOne(got *cel.Type, allowed []*cel.Type) bool {
	for _, t := range allowed {
		if t == cel.AnyType || got.IsExactType(t) {
			return true
		}
	}
	return false
}

func typeNames(of []*cel.Type) string {
	names := make([]string, len(of))
	for i, t := range of {
		names[i] = t.String()
	}
	if len(names) == 1 {
		return names[0]
	}
	return "one of " + fmt.Sprint(names)
}

// Declare compiles the composite variable variables.NAME. Expressions compiled afterwards can use
// it.
func (c *Compiler) Declare(name, expression string) (Program, error) {
	if err := c.share(map[string]*cel.Type{}); err != nil {
		return Program{}, err
	}
	p := c.Compile(expression, Anything)
	if p.Err == nil {
		c.variables.fields[name] = p.Type
	}
	c.programs = append(c.programs, namedProgram{name, p})
	return p, nil
}

// Assume declares a composite variable of any type.
func (c *Compiler) Assume(name string) { c.variables.fields[name] = cel.DynType }

// share gives the compiler composite variables, unless it already has some.
func (c *Compiler) share(fields map[string]*cel.Type) error {
	if c.variables != nil {
		return nil
	}
	v := &variables{Provider: c.env.CELTypeProvider(), fields: fields}
	env, err := c.env.Extend(cel.CustomTypeProvider(v), cel.Variable("variables", variablesType))
	if err != nil {
		return fmt.Errorf("CEL environment: %w", err)
	}
	c.variables, c.env = v, env
	return nil
}

// In returns a compiler for another scope with the same composite variables.
func (c *Compiler) In(scope Scope) (*Compiler, error) {
	other, err := New(scope)
	if err != nil {
		return nil, err
	}
	fields := map[string]*cel.Type{}
	if c.variables != nil {
		fields = c.variables.fields
	}
	other.programs, other.Metrics = c.programs, c.Metrics
	return other, other.share(fields)
}

const variablesTypeName = "kubernetes.variables"

var variablesType = types.NewObjectType(variablesTypeName)

// variables is the type of the composite variables declared so far.
type variables struct {
	types.Provider
	fields map[string]*cel.Type
}

// FindStructType implements types.Provider.
func (v *variables) FindStructType(name string) (*types.Type, bool) {
	if name == variablesTypeName {
		return types.NewTypeTypeWithParam(variablesType), true
	}
	return v.Provider.FindStructType(name)
}

// FindStructFieldNames implements types.Provider.
func (v *variables) FindStructFieldNames(name string) ([]string, bool) {
	if name != variablesTypeName {
		return v.Provider.FindStructFieldNames(name)
	}
	var names []string
	for field := range v.fields {
		names = append(names, field)
	}
	return names, true
}

// FindStructFieldType implements types.Provider.
func (v *variables) FindStructFieldType(name, field string) (*types.FieldType, bool) {
	if name != variablesTypeName {
		return v.Provider.FindStructFieldType(name, field)
	}
	t, ok := v.fields[field]
	return &types.FieldType{Type: t}, ok
}

// lazyVariables returns the composite variables of an evaluation.
func (c *Compiler) lazyVariables(e *Evaluation) *lazy.MapValue {
	m := lazy.NewMapValue(variablesType)
	for _, p := range c.programs {
		m.Append(p.name, func(*lazy.MapValue) ref.Val {
			v, err := e.Eval(p.Program)
			if cause := errors.Unwrap(err); cause != nil {
				err = cause // the cause already describes the failure
			}
			if err != nil {
				return types.NewErr("composited variable %q fails to evaluate: %s", p.name, err)
			}
			return v
		})
	}
	return m
}

// IsIdentifier reports whether a name is valid for a composite variable.
func IsIdentifier(name string) bool {
	for i, r := range name {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != "" && !strings.Contains(reserved, " "+name+" ")
}

// reserved are the reserved words of the language (CEL specification, syntax).
const reserved = " true false null in as break const continue else for function if import let loop package namespace return var void while "
