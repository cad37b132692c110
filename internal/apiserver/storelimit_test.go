package apiserver

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// TestObjectTooLargeForTheStoreIsRefused: in etcd's words, without a reason, and without
// the object's key.
func TestObjectTooLargeForTheStoreIsRefused(t *testing.T) {
	s := newTestServer(t)
	const templates = "/api/v1/namespaces/default/podtemplates"
	template := func(size int) string {
		return `{"apiVersion":"v1","kind":"PodTemplate","metadata":{"name":"t"},"template":{"spec":{"containers":[{"name":"c","image":"i","args":["` +
			strings.Repeat("x", size) + `"]}]}}}`
	}
	const tooLarge = 1600 << 10
	want := func(what string, code int, answer string) {
		t.Helper()
		var got metav1.Status
		if err := json.Unmarshal([]byte(answer), &got); err != nil {
			t.Fatalf("%s: %d %.300s: %v", what, code, answer, err)
		}
		if code != http.StatusInternalServerError || got.Code != 500 || got.Status != metav1.StatusFailure || got.Reason != "" || got.Message != "etcdserver: request is too large" || got.Details != nil {
			t.Errorf("%s is answered with %d: %.300s", what, code, answer)
		}
	}
	code, _, answer := do(t, s, "POST", templates, template(tooLarge), "Content-Type", wire.MediaJSON)
	want("create", code, answer)
	if code, _, answer = do(t, s, "POST", templates, template(1), "Content-Type", wire.MediaJSON); code != http.StatusCreated {
		t.Fatalf("%d: %.300s", code, answer)
	}
	code, _, answer = do(t, s, "PUT", templates+"/t", template(tooLarge), "Content-Type", wire.MediaJSON)
	want("update", code, answer)
	code, _, answer = do(t, s, "PATCH", templates+"/t", template(tooLarge), "Content-Type", "application/merge-patch+json")
	want("patch", code, answer)
}

// TestManagedFieldsOfALargeObjectAreDropped: the store has room for the object, but not for its
// managedFields, too.
func TestManagedFieldsOfALargeObjectAreDropped(t *testing.T) {
	s := newTestServer(t)
	large := map[string]string{}
	for i := range 10_000 {
		large[fmt.Sprintf("%s-%04d", strings.Repeat("long", 18), i)] = "A"
	}
	text := func(name string, data map[string]string) string {
		out, err := json.Marshal(&corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data})
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	const configMaps = "/api/v1/namespaces/default/configmaps"
	for name, write := range map[string]func(name string) (int, string){
		"create": func(name string) (int, string) {
			code, _, answer := do(t, s, "POST", configMaps, text(name, large), "Content-Type", wire.MediaJSON)
			return code, answer
		},
		"update": func(name string) (int, string) {
			if code, _, answer := do(t, s, "POST", configMaps, text(name, nil), "Content-Type", wire.MediaJSON); code != http.StatusCreated {
				return code, answer
			}
			code, _, answer := do(t, s, "PUT", configMaps+"/"+name, text(name, large), "Content-Type", wire.MediaJSON)
			return code, answer
		},
		"patch": func(name string) (int, string) {
			if code, _, answer := do(t, s, "POST", configMaps, text(name, nil), "Content-Type", wire.MediaJSON); code != http.StatusCreated {
				return code, answer
			}
			code, _, answer := do(t, s, "PATCH", configMaps+"/"+name, text(name, large), "Content-Type", "application/merge-patch+json")
			return code, answer
		},
	} {
		code, answer := write(name)
		if code >= 300 {
			t.Errorf("%s is answered with %d: %.300s", name, code, answer)
			continue
		}
		var given, stored corev1.ConfigMap
		if err := json.Unmarshal([]byte(answer), &given); err != nil {
			t.Fatal(err)
		}
		if _, _, answer = do(t, s, "GET", configMaps+"/"+name, ""); json.Unmarshal([]byte(answer), &stored) != nil || !maps.Equal(stored.Data, large) {
			t.Errorf("the object that %s wrote is missing: %.300s", name, answer)
		}
		if len(given.ManagedFields) != 0 || len(stored.ManagedFields) != 0 {
			t.Errorf("%s leaves owners: %d in the answer, %d in the store", name, len(given.ManagedFields), len(stored.ManagedFields))
		}
		code, _, answer = do(t, s, "PATCH", configMaps+"/"+name+"?fieldManager=f", text(name, nil), "Content-Type", "application/apply-patch+yaml")
		if code != http.StatusInternalServerError || !strings.Contains(answer, "too large") {
			t.Errorf("an apply after %s, which needs managedFields, is answered with %d: %.300s", name, code, answer)
		}
		if code, _, answer = do(t, s, "PATCH", configMaps+"/"+name, `{"data":{"k":"v"}}`, "Content-Type", "application/merge-patch+json"); code != http.StatusOK {
			t.Errorf("a patch of the object that %s wrote is answered with %d: %.300s", name, code, answer)
		}
	}
}
