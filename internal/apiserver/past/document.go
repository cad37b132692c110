package past

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// document is an object as JSON.
type document map[string]any

var errNoState = errors.New("the state was not recorded")

// document decodes a stored state in the kind's storage version. Values of Secrets are left out.
func (s *subject) document(stored []byte, revision int64) (doc document, err error) {
	if len(stored) == 0 {
		return nil, errNoState
	}
	if s.registry == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(stored, &doc)
		return doc, err
	}
	obj, err := s.registry.Codec.Decode(stored, revision)
	if err != nil {
		return nil, err
	}
	if secret, ok := obj.(*corev1.Secret); ok {
		hideValues(secret)
	}
	s.registry.ApplyDefaults(obj)
	raw, err := wire.Marshal(obj)
	if err != nil {
		return nil, err
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &doc); err != nil {
		return nil, err
	}
	gvk := s.registry.Hub
	doc["apiVersion"], doc["kind"] = gvk.GroupVersion().String(), gvk.Kind
	return doc, nil
}

// unsealed decrypts a state of the log.
func (p *Past) unsealed(ctx context.Context, key string, state []byte) ([]byte, error) {
	under, ok := p.Place.Raw.(sealer)
	if !ok {
		return state, nil
	}
	return under.Unseal(ctx, key, state)
}

func (d document) object() *unstructured.Unstructured { return &unstructured.Unstructured{Object: d} }

func (d document) gvk() schema.GroupVersionKind { return d.object().GroupVersionKind() }

func (d document) created() time.Time { return d.object().GetCreationTimestamp().Time }

// newestWrite returns the time of the last write that managedFields know.
func (d document) newestWrite() (newest time.Time) {
	for _, f := range d.object().GetManagedFields() {
		if f.Time != nil && f.Time.After(newest) {
			newest = f.Time.Time
		}
	}
	return newest
}

// writer returns the manager and the subresource of the managedFields that a change has renewed.
func (d document) writer(before document) (manager, subresource string) {
	type owner struct{ manager, operation, subresource string }
	known := map[owner]time.Time{}
	for _, f := range before.object().GetManagedFields() {
		if f.Time != nil {
			known[owner{f.Manager, string(f.Operation), f.Subresource}] = f.Time.Time
		}
	}
	var newest time.Time
	for _, f := range d.object().GetManagedFields() {
		if f.Time == nil {
			continue
		}
		if at, ok := known[owner{f.Manager, string(f.Operation), f.Subresource}]; ok && at.Equal(f.Time.Time) {
			continue
		}
		if !f.Time.Time.Before(newest) {
			newest, manager, subresource = f.Time.Time, f.Manager, f.Subresource
		}
	}
	return manager, subresource
}
