package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// defining returns a definition of namespaced kinds in stable.example.com/v1 whose objects have the
// properties.
func defining(plural, singular, kind, properties string) string {
	return fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]s.stable.example.com}
spec:
  group: stable.example.com
  scope: Namespaced
  names: {plural: %[1]s, singular: %[2]s, kind: %[3]s}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
`, plural, singular, kind) + strings.TrimPrefix(properties, "\n")
}

var nullables = defining("crates", "crate", "Crate", `
          spec:
            type: object
            properties:
              plain: {type: object, properties: {a: {type: string}}}
              filled: {type: object, default: {a: x}, properties: {a: {type: string}}}
              nullable: {type: object, nullable: true, properties: {a: {type: string}}}
              label: {type: string}
`)

func TestAppliedNullIsRefusedUnlessNullable(t *testing.T) {
	a := newAPI(t)
	a.define(nullables)
	const path = "/apis/stable.example.com/v1/namespaces/default/crates"
	crate := func(name, spec string) string {
		return "{apiVersion: stable.example.com/v1, kind: Crate, metadata: {name: " + name + "}, spec: {" + spec + "}}"
	}
	apply := func(name, spec string) (int, object) {
		code, out, _ := a.do("PATCH", path+"/"+name+"?fieldManager=m", crate(name, spec), "Content-Type", "application/apply-patch+yaml")
		return code, out
	}
	for field, want := range map[string]struct {
		refused string
		spec    object
	}{
		"plain":    {refused: `spec.plain in body must be of type object: "null"`},
		"label":    {refused: `spec.label in body must be of type string: "null"`},
		"filled":   {spec: object{"filled": object{"a": "x"}}},
		"nullable": {spec: object{"filled": object{"a": "x"}, "nullable": nil}},
	} {
		a.want(http.StatusCreated, "PATCH", path+"/"+field+"-old?fieldManager=m", crate(field+"-old", `plain: {a: "1"}, filled: {a: "2"}, nullable: {a: "3"}, label: "4"`), "Content-Type", "application/apply-patch+yaml")
		for _, name := range []string{field + "-new", field + "-old"} {
			code, out := apply(name, field+": null")
			message, _ := out["message"].(string)
			switch {
			case want.refused != "" && (code != http.StatusUnprocessableEntity || !strings.HasSuffix(message, want.refused)):
				t.Errorf("%s: %d %s", name, code, message)
			case want.refused == "" && !reflect.DeepEqual(out["spec"], want.spec):
				t.Errorf("%s: %d %v", name, code, out)
			}
		}
		// In a create, which is no apply, the null is dropped and has no owner.
		spec := object{"filled": object{"a": "x"}}
		if field == "nullable" {
			spec["nullable"] = nil
		}
		if out := a.want(http.StatusCreated, "POST", path, crate(field+"-created", field+": null")); !reflect.DeepEqual(out["spec"], spec) {
			t.Errorf("%s created: %v", field, out["spec"])
		}
	}
}

var embedding = defining("holds", "hold", "Hold", `
          cargo:
            type: object
            x-kubernetes-embedded-resource: true
            properties:
              apiVersion: {type: string, default: v1}
              kind: {type: string, default: Cargo}
              metadata:
                type: object
                default: {}
                properties:
                  name: {type: string, default: ale}
                  unknown: {type: string, default: x}
`)

func TestDefaultsOfEmbeddedMetadataHaveNoUnknownFields(t *testing.T) {
	a := newAPI(t)
	a.define(embedding)
	const path = "/apis/stable.example.com/v1/namespaces/default/holds"
	created := a.want(http.StatusCreated, "POST", path, "{apiVersion: stable.example.com/v1, kind: Hold, metadata: {name: one}, cargo: {}}")
	read := a.want(http.StatusOK, "GET", path+"/one", "")
	patched := a.want(http.StatusOK, "PATCH", path+"/one", `{"cargo":{"metadata":{"labels":null}}}`, "Content-Type", "application/merge-patch+json")
	for what, out := range map[string]object{"created": created, "read": read, "patched": patched} {
		if got := fmt.Sprint(at(out, "cargo")); got != "map[apiVersion:v1 kind:Cargo metadata:map[name:ale]]" {
			t.Errorf("%s: %s", what, got)
		}
	}
}

func TestWatchEndsWithoutErrorWhenItsDefinitionChanges(t *testing.T) {
	a := newAPI(t)
	a.define(crontabs)
	a.want(http.StatusCreated, "POST", crontabsPath, crontab)
	w := a.watch(crontabsPath + "?watch=1")
	if kind, _ := w.next(); kind != "ADDED" {
		t.Fatal(kind)
	}
	a.want(http.StatusOK, "PATCH", definitionsPath+"/crontabs.stable.example.com",
		`[{"op":"add","path":"/spec/versions/0/schema/openAPIV3Schema/properties/more","value":{"type":"string"}}]`, "Content-Type", "application/json-patch+json")
	if kind, out := w.next(); kind != "EOF" {
		t.Errorf("%s %v", kind, out)
	}
}

func TestWatchGetsEveryDeletionWithItsDefinition(t *testing.T) {
	a := newAPI(t)
	a.define(crontabs)
	a.want(http.StatusCreated, "POST", crontabsPath, crontab)
	w := a.watch(crontabsPath + "?watch=1")
	if kind, _ := w.next(); kind != "ADDED" {
		t.Fatal(kind)
	}
	a.want(http.StatusOK, "DELETE", definitionsPath+"/crontabs.stable.example.com", "")
	for _, want := range []string{"DELETED", "EOF"} {
		if kind, out := w.next(); kind != want {
			t.Fatalf("%s %v, want %s", kind, out, want)
		}
	}
}

// The events for a client that does not read are more than the kernel buffers, and some are still
// to be sent when the definition is gone.
func TestSlowWatchGetsEveryDeletionWithItsDefinition(t *testing.T) {
	a := newAPI(t)
	a.define(crontabs)
	list := a.want(http.StatusOK, "GET", crontabsPath, "")
	w := a.watch(crontabsPath + "?watch=1&resourceVersion=" + at(list, "metadata", "resourceVersion").(string))
	const objects = 24
	large := strings.Repeat("x", 200<<10)
	for i := range objects {
		body, err := json.Marshal(object{
			"apiVersion": "stable.example.com/v1", "kind": "CronTab", "spec": object{"cronSpec": "a"},
			"metadata": object{"name": fmt.Sprintf("one-%d", i), "annotations": object{"large": large}},
		})
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.Post(a.URL+crontabsPath, "application/json", bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusCreated {
			t.Fatal(response.Status)
		}
	}
	a.want(http.StatusOK, "DELETE", definitionsPath+"/crontabs.stable.example.com", "")
	a.eventually("the definition is gone", func() bool {
		code, _, _ := a.do("GET", definitionsPath+"/crontabs.stable.example.com", "")
		return code == http.StatusNotFound
	})
	told := map[string]int{}
	for {
		kind, _ := w.next()
		if kind == "EOF" {
			break
		}
		told[kind]++
	}
	if want := map[string]int{"ADDED": objects, "DELETED": objects}; !reflect.DeepEqual(told, want) {
		t.Errorf("the watch got %v, want %v", told, want)
	}
}

const customEvents = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: events.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: events, singular: event, kind: Event}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
`

func TestCustomKindNamedEventsMayHaveDependents(t *testing.T) {
	a := newAPI(t)
	a.define(customEvents)
	const path = "/apis/example.com/v1/namespaces/default/events"
	for policy, finalizer := range map[string]string{"Orphan": "orphan", "Foreground": "foregroundDeletion"} {
		name := strings.ToLower(policy)
		a.want(http.StatusCreated, "POST", path, "{apiVersion: example.com/v1, kind: Event, metadata: {name: "+name+"}}")
		a.want(http.StatusOK, "DELETE", path+"/"+name, "{propagationPolicy: "+policy+"}")
		if out := a.want(http.StatusOK, "GET", path+"/"+name, ""); fmt.Sprint(at(out, "metadata", "finalizers")) != "["+finalizer+"]" {
			t.Errorf("%s: finalizers %v", policy, at(out, "metadata", "finalizers"))
		}
	}
}
