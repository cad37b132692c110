package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/apiserver/verb"
)

// repeated formats the numbers up to n, separated by commas.
func repeated(format string, n int) string {
	var out strings.Builder
	for i := range n {
		if i > 0 {
			out.WriteByte(',')
		}
		fmt.Fprintf(&out, format, i)
	}
	return out.String()
}

// managersOf returns an object's field managers.
func managersOf(t *testing.T, body string) []metav1.ManagedFieldsEntry {
	t.Helper()
	var obj metav1.PartialObjectMetadata
	if err := json.Unmarshal([]byte(body), &obj); err != nil {
		t.Fatal(err)
	}
	return obj.ManagedFields
}

// TestVeryManyOwnersAreComparedInTime: a comparison in pairs would need five thousand million
// steps.
func TestVeryManyOwnersAreComparedInTime(t *testing.T) {
	yes := true
	var meta metav1.ObjectMeta
	for i := range 100_000 {
		uid := types.UID("all have the same")
		meta.OwnerReferences = append(meta.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: fmt.Sprint(i), UID: uid})
	}
	first := meta.OwnerReferences[0]
	other, another := first, first
	other.Controller, another.BlockOwnerDeletion = &yes, &yes
	meta.OwnerReferences = append(meta.OwnerReferences, other, another)
	told := ""
	op := &verb.Operation{Warn: func(text string) { told = text }}
	op.DropDuplicateOwners(&meta, "")
	if len(meta.OwnerReferences) != 100_002 || told != "" {
		t.Fatalf("%d owners are left of 100002, %.300q", len(meta.OwnerReferences), told)
	}
	meta.OwnerReferences = append(meta.OwnerReferences, *another.DeepCopy())
	op.DropDuplicateOwners(&meta, "")
	if len(meta.OwnerReferences) != 100_002 || told == "" {
		t.Fatalf("%d owners are left of 100003, %.300q", len(meta.OwnerReferences), told)
	}
}

// TestVeryManyManagersAreHandledInTime: the library copies the object for each manager,
// gigabytes each time.
func TestVeryManyManagersAreHandledInTime(t *testing.T) {
	s := newTestServer(t)
	const path, n = "/api/v1/namespaces/default/configmaps", 6000
	body := func(name, operation string) string {
		return `{"metadata":{"name":"` + name + `","managedFields":[` +
			repeated(`{"manager":"m%d","operation":"`+operation+`","apiVersion":"v1","time":"2024-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:k":{}}}}`, n) + `]}}`
	}
	code, _, answer := do(t, s, "POST", path, body("many", "Apply"))
	if got := managersOf(t, answer); code != http.StatusCreated || len(got) != n {
		t.Fatalf("%d, %d managers, %.300s", code, len(got), answer)
	}
	code, _, answer = do(t, s, "PATCH", path+"/many", `{"data":{"a":"b"}}`, "Content-Type", "application/merge-patch+json")
	if got := managersOf(t, answer); code != http.StatusOK || len(got) != n+1 {
		t.Errorf("a patch: %d, %d managers, %.300s", code, len(got), answer)
	}
	apply := func() (int, string) {
		code, _, answer := do(t, s, "PATCH", path+"/many?fieldManager=f", `{"apiVersion":"v1","kind":"ConfigMap","data":{"c":"d"}}`, "Content-Type", "application/apply-patch+yaml")
		return code, answer
	}
	if code, answer := apply(); code != http.StatusRequestEntityTooLarge || !strings.Contains(answer, "metadata.managedFields has 6001 entries") {
		t.Errorf("an apply: %d %.300s", code, answer)
	}
	code, _, answer = do(t, s, "PATCH", path+"/many", `{"metadata":{"managedFields":[{}]}}`, "Content-Type", "application/merge-patch+json")
	if got := managersOf(t, answer); code != http.StatusOK || len(got) != 0 {
		t.Errorf("a reset: %d, %d managers, %.300s", code, len(got), answer)
	}
	if code, answer := apply(); code != http.StatusOK {
		t.Errorf("an apply after the reset: %d %.300s", code, answer)
	}
	code, _, answer = do(t, s, "POST", path, body("updaters", "Update"))
	if got := managersOf(t, answer); code != http.StatusCreated || len(got) != 0 {
		t.Errorf("managers that would have to be merged: %d, %d are left, %.300s", code, len(got), answer)
	}
}
