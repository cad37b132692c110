package admission

import (
	"context"
	"time"

	"github.com/knarr-project/knarr/internal/admission/measure"
)

// measured is a plugin whose calls are timed.
type measured struct {
	Plugin
	mutator         Mutator   // nil if the plugin does not mutate
	validator       Validator // nil if the plugin does not validate
	confined        confined  // nil if the plugin may concern any write
	admit, validate *measure.Timer
}

// confined is a validator that concerns writes of some kinds only. Others are neither given to it
// nor timed.
type confined interface {
	concerns(a *Attributes) bool
}

func newMeasured(p Plugin, metrics *measure.Metrics) Plugin {
	if _, ok := p.(FieldValidator); ok {
		return p // counted as part of its kind's validation
	}
	m := &measured{Plugin: p}
	m.confined, _ = p.(confined)
	if mutator, ok := p.(Mutator); ok {
		m.mutator, m.admit = mutator, metrics.Plugin(p.Name(), measure.Admit)
	}
	if validator, ok := p.(Validator); ok {
		m.validator, m.validate = validator, metrics.Plugin(p.Name(), measure.Validate)
	}
	return m
}

// Admit implements Mutator.
func (m *measured) Admit(ctx context.Context, a *Attributes) error {
	if m.mutator == nil {
		return nil
	}
	since := time.Now()
	err := m.mutator.Admit(ctx, a)
	m.admit.Took(string(a.Operation), time.Since(since), err)
	return err
}

// Validate implements Validator.
func (m *measured) Validate(ctx context.Context, a *Attributes) error {
	if m.validator == nil || m.confined != nil && !m.confined.concerns(a) {
		return nil
	}
	since := time.Now()
	err := m.validator.Validate(ctx, a)
	m.validate.Took(string(a.Operation), time.Since(since), err)
	return err
}
