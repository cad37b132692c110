package architecture

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// Reader makes Models from objects of the API. It converts an object once, and makes a new Model
// only if an object has changed. The zero value is ready. Safe for concurrent use.
type Reader struct {
	mu                  sync.Mutex // guards the fields below
	components, systems []runtime.Object
	model               *Model
	err                 error
	known               map[types.UID]known
}

// known is an object in Go types, at one resourceVersion.
type known struct {
	version   string
	component *Component
	system    *System
}

// Model returns the Model of Components and Systems. Those in deletion are left out. The error
// names the objects that cannot be converted; they are left out too.
func (r *Reader) Model(components, systems []runtime.Object) (*Model, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.model != nil && slices.Equal(components, r.components) && slices.Equal(systems, r.systems) {
		return r.model, r.err
	}
	before := r.known
	r.known = map[types.UID]known{}
	var cs []*Component
	var ss []*System
	var errs []error
	for _, obj := range components {
		k, err := r.convert(obj, before, &known{component: &Component{}})
		errs = append(errs, err)
		if k != nil && k.component != nil {
			cs = append(cs, k.component)
		}
	}
	for _, obj := range systems {
		k, err := r.convert(obj, before, &known{system: &System{}})
		errs = append(errs, err)
		if k != nil && k.system != nil {
			ss = append(ss, k.system)
		}
	}
	r.components, r.systems = components, systems
	r.model, r.err = NewModel(cs, ss), errors.Join(errs...)
	return r.model, r.err
}

// convert fills an empty known from an object, or returns the one that it was converted to before.
func (r *Reader) convert(obj runtime.Object, before map[types.UID]known, empty *known) (*known, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("unexpected type %T", obj)
	}
	if u.GetDeletionTimestamp() != nil {
		return nil, nil
	}
	k, ok := before[u.GetUID()]
	if !ok || k.version != u.GetResourceVersion() || u.GetUID() == "" {
		k = *empty
		k.version = u.GetResourceVersion()
		var into any = k.component
		if k.component == nil {
			into = k.system
		}
		if err := From(u, into); err != nil {
			return nil, fmt.Errorf("%s %s: %w", u.GetKind(), u.GetName(), err)
		}
	}
	r.known[u.GetUID()] = k
	return &k, nil
}
