package admission

import (
	"context"
	"errors"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/knarr-project/knarr/internal/admission/measure"
	"github.com/knarr-project/knarr/internal/cel"
)

// Conditions are the matchConditions of a webhook or policy. They are compiled when the first write
// needs them.
type Conditions struct {
	about   measure.Condition
	metrics *measure.Metrics
	prepare func() (*cel.Compiler, []cel.Program, error)
}

// NewConditions prepares conditions over the variables of the scope; about identifies their owner
// in metrics.
func NewConditions(m *measure.Metrics, about measure.Condition, conditions []admissionregistrationv1.MatchCondition, scope cel.Scope) *Conditions {
	return &Conditions{about: about, metrics: m, prepare: onceValues(func() (*cel.Compiler, []cel.Program, error) {
		compiler, err := cel.New(scope)
		if err != nil {
			return nil, nil, err
		}
		compiler.Metrics = m.Expressions
		programs := make([]cel.Program, len(conditions))
		for i := range conditions {
			programs[i] = compiler.Compile(conditions[i].Expression, cel.Bool)
		}
		return compiler, programs, nil
	})}
}

func onceValues[A, B any](f func() (A, B, error)) func() (A, B, error) {
	var once sync.Once
	var a A
	var b B
	var err error
	return func() (A, B, error) {
		once.Do(func() { a, b, err = f() })
		return a, b, err
	}
}

// Match reports whether all conditions are true. One false condition is enough for false; otherwise
// a failed evaluation is an error.
func (c *Conditions) Match(ctx context.Context, a *Attributes, in cel.Input) (bool, error) {
	compiler, programs, err := c.prepare()
	if err != nil || len(programs) == 0 {
		return err == nil, err
	}
	since := time.Now()
	wanted, err := match(compiler.Evaluate(ctx, in, cel.BudgetMatchConditions), programs)
	c.metrics.Evaluated(c.about, string(a.Operation), time.Since(since), err)
	return wanted, err
}

func match(e *cel.Evaluation, programs []cel.Program) (bool, error) {
	var problems []error
	for _, p := range programs {
		value, err := e.Eval(p)
		switch {
		case errors.Is(err, cel.ErrBudget):
			return false, err
		case err != nil:
			problems = append(problems, err)
		case value.Value() != true:
			return false, nil
		}
	}
	return len(problems) == 0, utilerrors.NewAggregate(problems)
}
