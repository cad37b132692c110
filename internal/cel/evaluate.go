package cel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
	"google.golang.org/protobuf/types/known/structpb"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// Cost budgets of an Evaluation.
const (
	Budget                = int64(celconfig.RuntimeCELCostBudget)
	BudgetMatchConditions = int64(celconfig.RuntimeCELCostBudgetMatchConditions)
)

// ErrBudget means that the expressions evaluated so far have used up the common cost budget.
var ErrBudget = errors.New("validation failed due to running out of cost budget, no further validation rules will be run")

// Value returns a variable's value. It is called when an expression first reads the variable.
type Value func() any

// Once calls make at most once, for variables that several evaluations share. It is not safe for
// concurrent use.
func Once(make func() any) Value {
	var made bool
	var value any
	return func() any {
		if !made {
			value, made = make(), true
		}
		return value
	}
}

// OfObject returns an API object in the form of expressions: its JSON form, or null.
func OfObject(obj runtime.Object) Value {
	return Once(func() any {
		if obj == nil || reflect.ValueOf(obj).IsNil() {
			return nil
		}
		if u, ok := obj.(runtime.Unstructured); ok {
			return u.UnstructuredContent()
		}
		return unstructured(obj)
	})
}

func unstructured(obj any) any {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return types.NewErr("the value has no JSON form: %s", err)
	}
	return fields
}

// OfRequest returns the variable request.
func OfRequest(request func() *admissionv1.AdmissionRequest) Value {
	return Once(func() any {
		r := *request()
		r.Object, r.OldObject = runtime.RawExtension{}, runtime.RawExtension{}
		fields := unstructured(&r)
		if m, ok := fields.(map[string]any); ok {
			delete(m, "object")
			delete(m, "oldObject")
		}
		return fields
	})
}

// OfNamespace returns the variable namespaceObject: null for cluster-scoped objects.
func OfNamespace(namespace func() *corev1.Namespace) Value {
	return Once(func() any {
		n := namespace()
		if n == nil {
			return nil
		}
		return unstructured(&corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{
				Name: n.Name, GenerateName: n.GenerateName, Namespace: n.Namespace, Labels: n.Labels, Annotations: n.Annotations, UID: n.UID,
				CreationTimestamp: n.CreationTimestamp, DeletionGracePeriodSeconds: n.DeletionGracePeriodSeconds, DeletionTimestamp: n.DeletionTimestamp,
				Generation: n.Generation, ResourceVersion: n.ResourceVersion, Finalizers: n.Finalizers,
			},
			Spec: n.Spec, Status: corev1.NamespaceStatus{Phase: n.Status.Phase},
		})
	})
}

// Input holds the variables. Those outside the scope are nil.
type Input struct {
	Object, OldObject, Request, Namespace, Params Value
	// Authorizer and RequestResource are authorizer and authorizer.requestResource.
	Authorizer, RequestResource Value
}

// Evaluation evaluates programs of one compiler with one Input. It is not safe for concurrent use.
type Evaluation struct {
	ctx       context.Context
	input     Input
	variables ref.Val
	left      int64
	metrics   *Metrics
}

// Evaluate begins an evaluation with a cost budget.
func (c *Compiler) Evaluate(ctx context.Context, input Input, budget int64) *Evaluation {
	e := &Evaluation{ctx: ctx, input: input, left: budget, metrics: c.Metrics}
	if len(c.programs) > 0 {
		e.variables = c.lazyVariables(e)
	}
	return e
}

// ResolveName implements interpreter.Activation.
func (e *Evaluation) ResolveName(name string) (any, bool) {
	var v Value
	switch name {
	case "object":
		v = e.input.Object
	case "oldObject":
		v = e.input.OldObject
	case "request":
		v = e.input.Request
	case "namespaceObject":
		v = e.input.Namespace
	case "params":
		v = e.input.Params
	case "authorizer":
		v = e.input.Authorizer
	case "authorizer.requestResource":
		v = e.input.RequestResource
	case "variables":
		return e.variables, e.variables != nil
	}
	if v == nil {
		return nil, false
	}
	return v(), true
}

// Parent implements interpreter.Activation.
func (e *Evaluation) Parent() interpreter.Activation { return nil }

// Eval evaluates a program and deducts its cost.
func (e *Evaluation) Eval(p Program) (ref.Val, error) {
	if p.Err != nil {
		return nil, fmt.Errorf("compilation error: %w", p.Err)
	}
	if e.left < 0 {
		return nil, ErrBudget
	}
	since := time.Now()
	value, details, err := p.program.ContextEval(e.ctx, e)
	e.metrics.evaluated(since)
	if details == nil {
		if err == nil {
			err = errors.New("the cost is not known")
		}
		return nil, fmt.Errorf("expression '%s' resulted in error: %w", p.Expression, err)
	}
	if cost := details.ActualCost(); cost != nil {
		if *cost > math.MaxInt64 || int64(*cost) > e.left {
			e.left = -1
			return nil, ErrBudget
		}
		e.left -= int64(*cost)
	}
	if err != nil {
		return nil, fmt.Errorf("expression '%s' resulted in error: %w", p.Expression, err)
	}
	return value, nil
}

// Left returns the remaining cost budget.
func (e *Evaluation) Left() int64 { return e.left }

// Native converts a value to its JSON form.
func Native(v ref.Val) (any, error) {
	out, err := v.ConvertToNative(reflect.TypeFor[*structpb.Value]())
	if err != nil {
		return nil, err
	}
	switch o := out.(type) {
	case *structpb.Value:
		return o.AsInterface(), nil
	case *structpb.Struct: // the native form of the types Object...
		return o.AsMap(), nil
	}
	return nil, fmt.Errorf("a %s has no JSON form", v.Type().TypeName())
}
