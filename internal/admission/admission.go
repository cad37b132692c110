// Package admission is the ordered chain of plugins between authorization and commit of every
// write: mutating plugins, then (after defaulting and schema validation by the API server)
// validating plugins.
//
// In: the Attributes of one write, and views of the kinds that plugins look up. Out: a changed
// object, a refusal, warnings, audit annotations. chain.go lists the plugins in order.
package admission

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/admission/measure"
	"github.com/knarr-project/knarr/internal/auth"
)

// Operation is the kind of write.
type Operation string

const (
	Create  Operation = "CREATE"
	Update  Operation = "UPDATE"
	Delete  Operation = "DELETE"
	Connect Operation = "CONNECT"
)

// Attributes describes one write. Plugins may change Object in Admit, never in Validate. Object is
// nil for Delete. OldObject is nil for Create; it is shared and read-only.
type Attributes struct {
	User        auth.User
	Operation   Operation
	Verb        string // of the request; a patch is an Update, too
	Kind        schema.GroupVersionKind
	Resource    schema.GroupVersionResource
	Subresource string
	Namespace   string
	Name        string // may be empty for generateName
	Object      runtime.Object
	OldObject   runtime.Object
	// CreateOptions, UpdateOptions, DeleteOptions, or PatchOptions as Update- or CreateOptions.
	Options runtime.Object
	DryRun  bool

	// Warn sends a Warning header to the client; never nil.
	Warn func(text string)
	// Annotate adds an audit annotation; never nil.
	Annotate func(key, value string)
	// AnnotateRequest is Annotate for values as confidential as the object itself. nil if the audit
	// level does not record objects.
	AnnotateRequest func(key, value string)
	// Stopwatch receives the time that the write waits for other servers; may be nil.
	Stopwatch Stopwatch

	// Instant is set for a write that must not wait. A plugin that would call another server, or
	// write an object, returns ErrNotInstant.
	Instant bool
	// NamespaceVersion is the resourceVersion of the namespace in which a new object was admitted.
	// The write is refused if the namespace is deleted before the object is stored. "" if no plugin
	// checked the namespace.
	NamespaceVersion string
	// Charged are the quotas that have counted this write already, in an earlier attempt; nil for a
	// write that is not tried again. The quota plugin adds to it.
	Charged map[types.UID]bool

	// Rounds is the state that mutators share during one write; Chain.Admit sets it.
	Rounds *Rounds
}

// Stopwatch records how long a write waits for webhooks: the time of each mutating one, and of the
// slowest validating one.
type Stopwatch interface {
	Webhooks(mutating bool, took time.Duration)
}

// Webhooks reports a waiting time to the write's Stopwatch, if it has one.
func (a *Attributes) Webhooks(mutating bool, took time.Duration) {
	if a.Stopwatch != nil {
		a.Stopwatch.Webhooks(mutating, took)
	}
}

// ErrNotInstant refuses an Instant write that a plugin could not judge at once.
var ErrNotInstant = errors.New("admission needs another server or another write")

// Plugin is one step of the chain. It implements Mutator, Validator or both.
type Plugin interface {
	Name() string
	Handles(Operation) bool
}

// Mutator changes the object before it is validated.
type Mutator interface {
	Plugin
	Admit(ctx context.Context, a *Attributes) error
}

// Validator accepts or refuses the final object. An error that is not a StatusError becomes
// Forbidden.
type Validator interface {
	Plugin
	Validate(ctx context.Context, a *Attributes) error
}

// FieldValidator is a plugin whose field errors are reported together with those of the kind's own
// validation.
type FieldValidator interface {
	Plugin
	ValidateFields(ctx context.Context, a *Attributes) (field.ErrorList, error)
}

// Chain runs plugins in order. The zero value has none.
type Chain struct {
	plugins                 []Plugin
	admitStep, validateStep *measure.Timer // of the two steps; nil: nothing times them
}

// NewChain returns a chain of plugins. m times its steps; nil: nothing does.
func NewChain(m *measure.Metrics, plugins ...Plugin) Chain {
	c := Chain{plugins: plugins}
	if m != nil {
		c.admitStep, c.validateStep = m.Admit, m.Validate
	}
	return c
}

// ValidateFields returns the field errors of all plugins.
func (c Chain) ValidateFields(ctx context.Context, a *Attributes) (field.ErrorList, error) {
	var errs field.ErrorList
	for _, p := range c.plugins {
		if v, ok := p.(FieldValidator); ok && p.Handles(a.Operation) {
			found, err := v.ValidateFields(ctx, a)
			if err != nil {
				return nil, err
			}
			errs = append(errs, found...)
		}
	}
	return errs, nil
}

// Rounds tells mutators whether they see an object for the first time. Webhooks and policies may
// change it after earlier plugins and webhooks have seen it. Then all mutators run once more (API
// reference, reinvocationPolicy).
type Rounds struct {
	// Number is 0 in the first round, and 1 when the chain runs again. There are at most two
	// rounds.
	Number int
	repeat bool
	again  map[string]*Again // by plugin
}

// Admit runs every mutator that handles the operation. It runs them once more if one of them
// requests it.
func (c Chain) Admit(ctx context.Context, a *Attributes) error {
	since := time.Now()
	err := c.admitTwice(ctx, a)
	c.admitStep.Took(string(a.Operation), time.Since(since), err)
	return err
}

func (c Chain) admitTwice(ctx context.Context, a *Attributes) error {
	a.Rounds = &Rounds{}
	if err := c.admit(ctx, a); err != nil || !a.Rounds.repeat {
		return err
	}
	a.Rounds.Number = 1
	return c.admit(ctx, a)
}

func (c Chain) admit(ctx context.Context, a *Attributes) error {
	for _, p := range c.plugins {
		if m, ok := p.(Mutator); ok && p.Handles(a.Operation) {
			if err := m.Admit(ctx, a); err != nil {
				return err
			}
		}
	}
	return nil
}

// Validate runs every validator that handles the operation.
func (c Chain) Validate(ctx context.Context, a *Attributes) error {
	since := time.Now()
	err := c.validate(ctx, a)
	c.validateStep.Took(string(a.Operation), time.Since(since), err)
	return err
}

func (c Chain) validate(ctx context.Context, a *Attributes) error {
	for _, p := range c.plugins {
		if v, ok := p.(Validator); ok && p.Handles(a.Operation) {
			if err := v.Validate(ctx, a); err != nil {
				return err
			}
		}
	}
	return nil
}
