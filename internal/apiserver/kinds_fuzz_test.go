package apiserver

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/api"
	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/verb"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// randomBody decodes a request's body of the endpoint's kind like a request; nil if it is refused.
func randomBody(t *testing.T, e *registry.Endpoint, o *randomFiller) runtime.Object {
	obj, err := api.Scheme.New(e.GVK)
	if err != nil {
		t.Fatal(err)
	}
	o.fill(reflect.ValueOf(obj).Elem(), 0)
	body, err := json.Marshal(obj)
	if err != nil {
		t.Fatalf("%s: what is filled in has no form in JSON: %v", e.GVK, err)
	}
	taken, err := wire.DecodeBody(wire.MediaJSON, body, e.GVK, metav1.FieldValidationIgnore, func(string) {})
	if err != nil {
		if !wire.IsStatus(err) {
			t.Errorf("%s: the error is no answer: %v", e.GVK, err)
		}
		return nil
	}
	hub, err := e.ToHub(taken)
	if err != nil {
		t.Logf("%s: %v", e.GVK, err)
		return nil
	}
	return hub
}

// checkKept checks that a stored object can be read again, shown in every form and selected by its
// fields.
func checkKept(t *testing.T, e *registry.Endpoint, obj runtime.Object) {
	e.Header(obj)
	shown, err := e.FromHub(obj)
	if err != nil {
		t.Logf("%s: %v", e.GVK, err)
		return
	}
	for _, f := range []wire.Format{{Media: wire.MediaJSON}, {Media: wire.MediaProtobuf}, {Media: wire.MediaJSON, As: "PartialObjectMetadata", AsVersion: "v1"}} {
		if _, err := e.EncodeObject(shown, f); err != nil && !strings.Contains(err.Error(), "UTF-8") {
			t.Errorf("%s: it can not be shown: %v", e.GVK, err)
		}
	}
	if _, err := e.Table([]runtime.Object{obj}, metav1.ListMeta{}, wire.Format{Media: wire.MediaJSON, As: "Table"}, true); err != nil {
		t.Errorf("%s: it has no row: %v", e.GVK, err)
	}
	if e.Codec == nil {
		return
	}
	stored, err := e.Codec.Encode(obj)
	if err != nil {
		if !strings.Contains(err.Error(), "UTF-8") {
			t.Errorf("%s: it can not be stored: %v", e.GVK, err)
		}
		return
	}
	if _, err := e.Decode(stored, 7); err != nil {
		t.Errorf("%s: what was stored can not be read: %v", e.GVK, err)
	}
}

// everyEndpoint returns the endpoints of all built-in kinds in all versions, in a stable order.
func everyEndpoint(s *Server) (all []*registry.Endpoint) {
	for _, e := range s.endpoints.Builtin {
		all = append(all, e)
	}
	slices.SortFunc(all, func(a, b *registry.Endpoint) int { return strings.Compare(a.GVR.String(), b.GVR.String()) })
	return all
}

// FuzzStoredObjects decodes arbitrary stored values; a value that can be decoded can be shown.
func FuzzStoredObjects(f *testing.F) {
	all := everyEndpoint(newTestServer(f))
	for i, e := range all {
		if e.Codec == nil {
			continue
		}
		stored, err := e.Codec.Encode(e.NewObject())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint16(i), stored)
	}
	f.Add(uint16(0), []byte("k8s\x00\x0a\x00\x12\x02\x0a\xff"))
	f.Add(uint16(0), []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":1}}`))
	f.Fuzz(func(t *testing.T, which uint16, stored []byte) {
		e := all[int(which)%len(all)]
		if e.Codec == nil {
			return
		}
		if obj, err := e.Decode(stored, 7); err == nil {
			checkKept(t, e, obj)
		}
	})
}

// FuzzKinds sends objects of every kind with arbitrary fields through the steps of requests: each
// has an answer.
func FuzzKinds(f *testing.F) {
	all := everyEndpoint(newTestServer(f))
	for i := range all {
		for seed := range byte(3) {
			f.Add(uint16(i), []byte{seed}, []byte{seed + 100})
		}
	}
	f.Fuzz(func(t *testing.T, which uint16, data, other []byte) {
		e := all[int(which)%len(all)]
		obj := randomBody(t, e, newRandomFiller(data))
		if obj == nil {
			return
		}
		strategy := e.Strategy
		before := obj.DeepCopyObject()
		if strategy.WarningsAsSent != nil {
			strategy.WarningsAsSent(obj)
		}
		if strategy.PrepareCreate != nil {
			strategy.PrepareCreate(obj)
		}
		errs := strategy.ValidateNew(obj, e.Kind.Namespaced)
		if strategy.Warnings != nil {
			strategy.Warnings(obj, nil)
		}
		e.Header(obj)
		e.Cells(obj, metav1.Now())
		if len(errs) == 0 {
			checkKept(t, e, obj)
		}
		if changed := randomBody(t, e, newRandomFiller(other)); changed != nil {
			checkUpdate(e, changed, obj)
		}
		checkUpdate(e, before, obj)
		checkUpdate(e, obj.DeepCopyObject(), before)
	})
}

// checkUpdate validates the change from old to obj by the rules of the kind and all its
// subresources.
func checkUpdate(e *registry.Endpoint, obj, old runtime.Object) {
	subresources := []string{"", "status"}
	for name := range e.Strategy.Subresource {
		subresources = append(subresources, name)
	}
	for _, name := range subresources {
		op := &verb.Operation{Endpoint: e, Subresource: name}
		prepare, validate := op.UpdateRules()
		obj := obj.DeepCopyObject()
		if prepare != nil {
			prepare(obj, old)
		}
		if e.Strategy.Stamp != nil {
			e.Strategy.Stamp(obj, old, metav1.Now())
		}
		e.Strategy.ValidateMetaUpdate(wire.Accessor(obj), wire.Accessor(old), e.Kind.Namespaced, name)
		if validate != nil {
			validate(obj, old)
		}
		if name == "" && e.Strategy.Warnings != nil {
			e.Strategy.Warnings(obj, old)
		}
	}
}
