package verb

import (
	"errors"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/admission"
	"github.com/knarr-project/knarr/internal/apiserver/custom"
	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/store"
)

// guard lets a create depend on the object's namespace and on its definition. Each may be deleted,
// through another server, between the admission of the object and its commit. Then the object would
// stay behind: what removes a namespace's content, or a definition's objects, has already looked.
func (op *Operation) guard(t *registry.Transaction, namespace string, obj runtime.Object) {
	if revision, err := strconv.ParseInt(op.namespaceVersion, 10, 64); err == nil {
		if r := op.Engine.Kinds.Registry("", namespaces.Resource); r != nil && r.Place == t.Place {
			t.Guards = append(t.Guards, registry.Guard{Key: r.Key("", namespace), Revision: revision, Allows: op.namespaceAllows(r, namespace, obj)})
		}
	}
	if op.Endpoint.Custom == nil {
		return
	}
	definition, gr := op.Endpoint.Custom.Definition(), op.Endpoint.Resource
	if r := op.Engine.Kinds.Registry(apiextensionsv1.GroupName, "customresourcedefinitions"); r != nil && r.Place == t.Place {
		t.Guards = append(t.Guards, registry.Guard{Key: r.Key("", gr.Resource+"."+gr.Group), Revision: definition.Revision(), Allows: op.definitionAllows(r, definition)})
	}
}

// namespaceAllows checks a namespace that has changed since the object was admitted.
func (op *Operation) namespaceAllows(r *registry.Registry, name string, obj runtime.Object) func(*store.KeyValue) error {
	return func(kv *store.KeyValue) error {
		state, err := r.FromStore(kv)
		if err != nil {
			return err
		}
		ns, ok := state.Obj.(*corev1.Namespace)
		switch {
		case !ok:
			return apierrors.NewNotFound(namespaces, name)
		case ns.Status.Phase == corev1.NamespaceTerminating:
			return op.Attributes(admission.Create, obj, nil).NamespaceTerminates()
		}
		return nil
	}
}

// errDefinitionChanged refuses an object that was checked by a schema which is not valid any more.
var errDefinitionChanged = errors.New("the custom resource definition has changed during the request")

// definitionAllows checks a definition that has changed since the object was decoded.
func (op *Operation) definitionAllows(r *registry.Registry, used *custom.Definition) func(*store.KeyValue) error {
	return func(kv *store.KeyValue) error {
		state, err := r.FromStore(kv)
		if err != nil {
			return err
		}
		now, ok := state.Obj.(*apiextensionsv1.CustomResourceDefinition)
		switch {
		case !ok:
			return apierrors.NewNotFound(op.Endpoint.Resource, op.Name)
		case custom.Terminating(now):
			return ErrTerminating(op.Endpoint.Resource, "create")
		case !used.Serves(now):
			return wire.TryAgain(errDefinitionChanged)
		}
		return nil
	}
}
