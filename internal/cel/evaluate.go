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

// Budgets of an Evaluation.
const (
	Budget                = int64(celconfig.RuntimeCELCostBudget)
	BudgetMatchConditions = int64(celconfig.RuntimeCELCostBudgetMatchConditions)
)

// ErrBudget: the expressions evaluated so far have used up what they may cost together.
var ErrBudget = errors.New("validation failed due to running out of cost budget, no further validation rules will be run")

// Value makes a variable's value when an expression first reads it.
type Value func() any

// Once is a Value that is made at most once, for variables that several evaluations share. Not safe for concurrent use.
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

// OfObject is an API object as expressions see it: its JSON form, or null.
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

// OfRequest is the variable request.
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

// OfNamespace is the variable namespaceObject: null for what is in no namespace.
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

// Input holds the variables; those that the scope does not have are nil.
type Input struct {
	Object, OldObject, Request, Namespace, Params Value
	// Authorizer and RequestResource are authorizer and authorizer.requestResource.
	Authorizer, RequestResource Value
}

// Evaluation evaluates programs of one compiler over one Input. Not safe for concurrent use.
type Evaluation struct {
	ctx       context.Context
	input     Input
	variables ref.Val
	left      int64
	metrics   *Metrics
}

// Evaluate begins an evaluation that may cost as much as the budget.
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

// Eval evaluates a program, at its cost.
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

// Left is what further programs may cost.
func (e *Evaluation) Left() int64 { return e.left }

// Native gives a value as JSON knows it.
func Native(v ref.Val) (any, error) {
	out, err := v.ConvertToNative(reflect.TypeFor[*structpb.Value]())
	if err != nil {
		return nil, err
	}
	switch o := out.(type) {
	case *structpb.Value:
		return o.AsInterface(), nil
	case *structpb.Struct: // what values of the types Object... make of themselves
		return o.AsMap(), nil
	}
	return nil, fmt.Errorf("a %s has no JSON form", v.Type().TypeName())
}
