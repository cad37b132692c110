package clienttest

import (
	"context"
	"encoding/json"
	"reflect"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/knarr-project/knarr/internal/client"
)

// Patch implements client.Interface for JSON patches, merge patches and strategic merge patches.
func (m *Memory) Patch(_ context.Context, res schema.GroupVersionResource, namespace, name string, pt types.PatchType, data []byte,
	_ metav1.PatchOptions, sub ...string) (runtime.Object, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	have, err := m.find(res, namespace, name)
	if err != nil {
		return nil, err
	}
	before, err := json.Marshal(have)
	if err != nil {
		return nil, err
	}
	after, err := patched(before, have, pt, data)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if after == nil {
		return nil, apierrors.NewMethodNotSupported(res.GroupResource(), "patch by "+string(pt))
	}
	wanted := reflect.New(reflect.TypeOf(have).Elem()).Interface().(client.Object)
	if err := json.Unmarshal(after, wanted); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return m.replace(res, have, wanted, sub)
}

// patched returns the patched document; nil means that the type of the patch is not supported.
func patched(doc []byte, of runtime.Object, pt types.PatchType, data []byte) ([]byte, error) {
	switch pt {
	case types.JSONPatchType:
		patch, err := jsonpatch.DecodePatch(data)
		if err != nil {
			return nil, err
		}
		return patch.Apply(doc)
	case types.MergePatchType:
		return jsonpatch.MergePatch(doc, data)
	case types.StrategicMergePatchType:
		return strategicpatch.StrategicMergePatch(doc, data, of)
	}
	return nil, nil
}
