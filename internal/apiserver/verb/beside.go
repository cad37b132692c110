package verb

import (
	"context"
	"errors"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// Beside is a new object that is ready to be committed together with another write (ADR 0105).
type Beside struct {
	Object runtime.Object
	txn    *registry.Transaction
}

// ErrLeftOut is the reason why an object was not committed with the other write.
var ErrLeftOut = errors.New("left out of the commit: its name is taken, its namespace has changed, or the store refused it")

// PrepareBeside admits and validates a new object, which belongs to the operation. It fails if
// admission would have to wait for another server.
func (op *Operation) PrepareBeside(ctx context.Context, obj runtime.Object) (*Beside, error) {
	op.instant = true
	obj, err := op.admitNew(ctx, obj)
	if err != nil {
		return nil, err
	}
	t := op.newTxn()
	if err := op.PrepareCreate(ctx, t, obj); err != nil {
		return nil, err
	}
	meta := wire.Accessor(obj)
	if _, err := op.put(ctx, t, op.Endpoint.Key(meta.GetNamespace(), meta.GetName()), obj); err != nil {
		return nil, err
	}
	return &Beside{obj, t}, nil
}

// BindWith posts a binding, which belongs to the operation, and commits a prepared object with the
// pod; with may be nil. recorded is false if the pod was bound without the object.
func (op *Operation) BindWith(ctx context.Context, b *corev1.Binding, with *Beside) (answer runtime.Object, recorded bool, err error) {
	op.beside = with
	answer, err = op.CreateAny(ctx, b)
	return answer, err == nil && op.beside != nil, err
}

// join adds the object to the transaction of the other write; b may be nil.
func (b *Beside) join(t *registry.Transaction) {
	if b != nil {
		t.Beside = b.txn
	}
}

// joined returns b if the transaction was committed with the object, else nil.
func (b *Beside) joined(t *registry.Transaction) *Beside {
	if t.Beside == nil {
		return nil
	}
	return b
}

// committed completes the object after the commit, and waits until readers see it; b may be nil.
func (b *Beside) committed(ctx context.Context, resourceVersion string) {
	if b == nil {
		return
	}
	wire.Accessor(b.Object).SetResourceVersion(resourceVersion)
	if revision, err := strconv.ParseInt(resourceVersion, 10, 64); err == nil {
		b.txn.Registry.WaitVisible(ctx, revision)
	}
}
