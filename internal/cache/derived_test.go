package cache

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

func asText(obj runtime.Object) ([]byte, error) { return fmt.Append(nil, obj.GetObjectKind()), nil }

func sameObject(obj runtime.Object) (runtime.Object, error) { return obj, nil }

func TestDerivedFormsAreKeptWhileTheyAreUsed(t *testing.T) {
	s := openStore(t)
	write(t, s, pods, pod("a", "one", "", nil))
	k := openKind(t, openCache(t, s), pods)
	e, _ := k.Snapshot().Get(pods + "/a/one")
	if e.object.Load() != nil {
		t.Error("the object of a listed entry is kept although it was not used")
	}
	use := func() {
		_, _ = e.Object()
		_, _ = e.Encoded("text", asText)
		_, _ = e.Derived("same", sameObject)
	}
	kept := func() [3]bool {
		return [3]bool{e.object.Load() != nil, e.encodings.Load() != nil, e.derived.Load() != nil}
	}
	for range 3 {
		use()
		if k.trim(time.Now()); kept() != [3]bool{true, true, true} {
			t.Fatalf("used and not kept: object, encoding, derived: %v", kept())
		}
	}
	if k.trim(time.Now()); kept() != [3]bool{} {
		t.Errorf("not used any more and kept: object, encoding, derived: %v", kept())
	}
	if obj, err := e.Object(); err != nil || obj == nil {
		t.Errorf("it is not made again: %v, %v", obj, err)
	}
}

func TestObjectsStayDecodedIfTheSchemaSaysSo(t *testing.T) {
	s := openStore(t)
	write(t, s, pods, pod("a", "one", "", nil))
	schema := podSchema(pods)
	schema.Keep = true
	k, err := openCache(t, s).Kind(schema)
	if err != nil {
		t.Fatal(err)
	}
	wait(t, k, write(t, s, pods, pod("a", "two", "", nil)))
	k.trim(time.Now())
	k.trim(time.Now())
	k.Snapshot().Ascend(pods, "", func(e *Entry) bool {
		if e.object.Load() == nil {
			t.Errorf("%s is not decoded", e.Name)
		}
		return true
	})
}

func TestANewObjectStaysDecodedForItsReaders(t *testing.T) {
	for name, c := range map[string]struct {
		interest Interest
		light    bool
		kept     bool
	}{
		"a reader of everything":              {kept: true},
		"a reader of everything, but lightly": {light: true},
		"a reader of its namespace":           {interest: Interest{Namespace: "a"}, kept: true},
		"a reader of another namespace":       {interest: Interest{Namespace: "b"}},
		"a reader of its name anywhere":       {interest: Interest{Fields: fields.OneTermEqualSelector("metadata.name", "one")}, kept: true},
		"a reader of another name":            {interest: Interest{Fields: fields.OneTermEqualSelector("metadata.name", "two")}},
		"a reader of its node":                {interest: Interest{Fields: fields.OneTermEqualSelector("spec.nodeName", "n")}, kept: true},
		"a reader of another node":            {interest: Interest{Fields: fields.OneTermEqualSelector("spec.nodeName", "m")}},
	} {
		t.Run(name, func(t *testing.T) {
			s := openStore(t)
			k := openKind(t, openCache(t, s), pods)
			watch := k.Watch
			if c.light {
				watch = k.WatchLight
			}
			cursor, err := watch(k.Revision(), c.interest)
			if err != nil {
				t.Fatal(err)
			}
			e, _ := wait(t, k, write(t, s, pods, pod("a", "one", "n", nil))).Get(pods + "/a/one")
			if kept := e.object.Load() != nil; kept != c.kept {
				t.Errorf("kept is %v, want %v", kept, c.kept)
			}
			cursor.Close()
			e, _ = wait(t, k, write(t, s, pods, pod("a", "one", "n", map[string]string{"changed": ""}))).Get(pods + "/a/one")
			if e.object.Load() != nil {
				t.Error("kept although the reader has gone")
			}
		})
	}
}

func TestEncodingsOfReplacedStatesAreNotKept(t *testing.T) {
	s := openStore(t)
	k := openKind(t, openCache(t, s), pods)
	e, _ := wait(t, k, write(t, s, pods, pod("a", "one", "", nil))).Get(pods + "/a/one")
	e.dropForms()
	if b, err := e.Encoded("text", asText); err != nil || len(b) == 0 {
		t.Fatal(string(b), err)
	}
	if e.encodings.Load() != nil {
		t.Error("the encoding is kept")
	}
}

func TestSelectorsMatchAnEntrysPairs(t *testing.T) {
	h := Header{Labels: PairsOf(labels.Set{"b": "2", "a": "1", "empty": ""}), Fields: PairsOf(fields.Set{"spec.nodeName": "n"})}
	e := &Entry{Header: h}
	e.Namespace, e.Name = "ns", "one"
	for selector, want := range map[string]bool{"a=1": true, "a=1,b in (2,3)": true, "!c": true, "empty": true, "empty=": true, "a=2": false, "c": false} {
		parsed, err := labels.Parse(selector)
		if err != nil {
			t.Fatal(err)
		}
		if got := parsed.Matches(&e.Labels); got != want {
			t.Errorf("labels %s match: %v, want %v", selector, got, want)
		}
	}
	for selector, want := range map[string]bool{
		"metadata.name=one": true, "metadata.namespace=ns": true, "spec.nodeName=n": true, "spec.nodeName!=n": false, "metadata.name=two": false,
	} {
		if got := fields.ParseSelectorOrDie(selector).Matches(e.Selectable()); got != want {
			t.Errorf("fields %s match: %v, want %v", selector, got, want)
		}
	}
	if m := e.Labels.Map(); len(m) != 3 || m["b"] != "2" {
		t.Errorf("the labels are the map %v", m)
	}
}
