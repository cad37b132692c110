package verb

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/apiserver/audit"
	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/trace"
)

// SetOptions sets the operation's options and, unless manager is empty, its field manager.
func (op *Operation) SetOptions(opts runtime.Object, dryRun []string, manager string) {
	op.Options, op.DryRun = opts, len(dryRun) > 0
	if manager != "" {
		op.FieldManager = manager
	}
}

// Versioned converts a result to the requested version.
func (op *Operation) Versioned(obj runtime.Object, err error) (runtime.Object, error) {
	if err != nil || op.GVK != op.Endpoint.GVK {
		return obj, err
	}
	return op.Endpoint.FromHub(obj)
}

// CopyOf copies a caller's object and checks that it is of the operation's kind.
func (op *Operation) CopyOf(obj runtime.Object) (runtime.Object, error) {
	obj = obj.DeepCopyObject()
	if op.HasCustomBody() {
		return op.copyOfCustom(obj)
	}
	if u, ok := obj.(runtime.Unstructured); ok {
		typed, err := wire.ObjectConvertor{}.Typed(u, op.GVK)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		obj = typed
	}
	wire.ClearKind(obj)
	got, err := wire.KindOf(obj)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if !slices.Contains(got, op.GVK) {
		return nil, wire.MatchKind(got[0], op.GVK)
	}
	return obj, nil
}

// Operation is one request, over HTTP or from a component of this process.
type Operation struct {
	Engine      *Engine
	Endpoint    *registry.Endpoint
	User        auth.User
	Verb        string
	Namespace   string
	Name        string
	Subresource string
	// GVK is the kind of the body: the endpoint's, or the subresource's own (Scale, Binding).
	GVK schema.GroupVersionKind
	// Options are Create-, Update-, Patch- or DeleteOptions, for admission.
	Options runtime.Object
	DryRun  bool
	// FieldManager becomes the owner of the fields that this write sets.
	FieldManager string
	// creates is set when a PUT or an apply creates its object. The user was authorized for the
	// update only, and must also be allowed to create.
	creates bool
	// applies is set for a server-side apply.
	applies bool
	// Raw is set for the server's own writes, which skip the kind's update rules for users.
	Raw bool
	// Warn sends a Warning header; never nil.
	Warn func(text string)
	// Stopwatch measures the time spent in webhooks.
	Stopwatch admission.Stopwatch
	// namespaceVersion is the state of the namespace in which the object was admitted.
	namespaceVersion string
	// charged are the quotas that have counted a create that is tried again.
	charged map[types.UID]bool
	// beside is an object that is committed with this write if nothing refuses it.
	beside *Beside
	// instant is set for a write that fails rather than wait for another server.
	instant bool
	// Request is the audit ID of the request; "" for a call in the process.
	Request string
	// At is the time of a read of objects as they were; zero for a read of the present.
	At time.Time
}

// Attributes describes the operation to admission.
func (op *Operation) Attributes(what admission.Operation, obj, old runtime.Object) *admission.Attributes {
	a := &admission.Attributes{
		User: op.User, Operation: what, Verb: op.Verb, Kind: op.GVK, Resource: op.Endpoint.GVR, Subresource: op.Subresource,
		Namespace: op.Namespace, Name: op.Name, Object: obj, OldObject: old, Options: op.Options, DryRun: op.DryRun,
		Warn: op.Warn, Annotate: func(string, string) {}, Stopwatch: op.Stopwatch, Charged: op.charged, Instant: op.instant,
	}
	if u, ok := op.Options.(*metav1.UpdateOptions); ok && what == admission.Create {
		a.Options = &metav1.CreateOptions{DryRun: u.DryRun, FieldManager: u.FieldManager, FieldValidation: u.FieldValidation}
	}
	if op.Endpoint.Resource == (schema.GroupResource{Resource: "namespaces"}) {
		a.Namespace = op.Name // as in the request's path
	}
	return a
}

// Admit runs the mutating plugins. A plugin may add fields that a custom object's schema lacks, so
// the object is pruned again.
func (op *Operation) Admit(ctx context.Context, a *admission.Attributes) error {
	if err := op.mutate(ctx, a); err != nil {
		return err
	}
	if u, ok := a.Object.(*unstructured.Unstructured); ok && op.HasCustomBody() {
		return op.Endpoint.Custom.Prune(u)
	}
	return nil
}

// connectAudit connects admission to the request's audit record, which may be nil.
func connectAudit(ctx context.Context, a *admission.Attributes) {
	rec := audit.From(ctx)
	a.Annotate = rec.Annotate
	if rec.WantsRequest() {
		a.AnnotateRequest = rec.Annotate
	}
	if a.Stopwatch == nil {
		a.Stopwatch = rec
	}
}

// mutate runs the mutating plugins. If they leave invalid managedFields, the old managedFields are
// restored.
func (op *Operation) mutate(ctx context.Context, a *admission.Attributes) error {
	connectAudit(ctx, a)
	acc, err := meta.Accessor(a.Object)
	if err != nil {
		// The object has no metadata: it is nil, or options of a connection.
		return op.asForbidden(op.Engine.Access.Admission().Admit(ctx, a))
	}
	defer func() { op.namespaceVersion = a.NamespaceVersion }()
	before := acc.GetManagedFields()
	ctx, span := trace.Start(ctx, "Mutating admission")
	err = op.asForbidden(op.Engine.Access.Admission().Admit(ctx, a))
	span.End()
	if err != nil {
		return err
	}
	if err := op.keepNamespace(acc); err != nil {
		return err
	}
	op.DropDuplicateOwners(acc, AfterMutatingAdmission)
	if op.FieldManager == "" || slices.Equal(before, acc.GetManagedFields()) {
		return nil // the same slice, not equal copies: no plugin has touched it
	}
	if err := managedfields.ValidateManagedFields(acc.GetManagedFields()); err != nil {
		op.Warn(".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated mutating admission controller; please fix your requests: " + err.Error())
		acc.SetManagedFields(before)
	}
	return nil
}

// keepNamespace prevents admission from moving an object to another namespace or out of its
// namespace.
func (op *Operation) keepNamespace(acc metav1.Object) error {
	switch ns := acc.GetNamespace(); {
	case !op.Endpoint.Kind.Namespaced || ns == op.Namespace:
		return nil
	case ns != "":
		return wire.ErrNamespaceMismatch
	case op.Subresource == "" && !op.Endpoint.Kind.Virtual:
		acc.SetNamespace(op.Namespace)
	}
	return nil
}

// ValidateAdmission runs the validating plugins.
func (op *Operation) ValidateAdmission(ctx context.Context, a *admission.Attributes) error {
	connectAudit(ctx, a)
	ctx, span := trace.Start(ctx, "Validating admission")
	defer span.End()
	return op.asForbidden(op.Engine.Access.Admission().Validate(ctx, a))
}

// validateFields returns the field errors of the kind's hook, which the strategy does not find.
func (op *Operation) validateFields(ctx context.Context, a *admission.Attributes) (field.ErrorList, error) {
	check := op.Endpoint.Hooks.Validate
	if check == nil {
		return nil, nil
	}
	errs, err := check(ctx, a)
	return errs, op.asForbidden(err)
}

// asForbidden turns an admission error that is no Status into Forbidden, as upstream does.
func (op *Operation) asForbidden(err error) error {
	if err == nil || wire.IsStatus(err) {
		return err
	}
	return apierrors.NewForbidden(op.Endpoint.Resource, op.Name, err)
}

// newTxn begins the transaction of a write.
func (op *Operation) newTxn() *registry.Transaction {
	t := &registry.Transaction{Registry: op.Endpoint.Registry, Place: op.Endpoint.Place, DryRun: op.DryRun, KeepsOwners: op.applies}
	t.Author = registry.Author{User: op.User.Name, Verb: op.Verb, Subresource: op.Subresource, Manager: op.FieldManager, Request: op.Request}
	if op.applies {
		t.Author.Verb = "apply"
	}
	return t
}
