package apiserver

import (
	"testing"
)

// An apply may name an item by an empty string, which the object then omits: from the next write
// on, ownership of the item is unknown.
func TestManagedFieldsAreDroppedForItemsWithoutKey(t *testing.T) {
	s := newTestServer(t)
	merge, apply := []string{"Content-Type", "application/merge-patch+json"}, []string{"Content-Type", "application/apply-patch+yaml"}
	const accounts = "/api/v1/namespaces/default/serviceaccounts"
	for _, a := range []answerCase{
		{"an account", "POST", accounts, `{"metadata":{"name":"a"},"secrets":[{"name":"s"}]}`, nil, 201, "managedFields", "", ""},
		{"an applied secret without a name", "PATCH", accounts + "/a?fieldManager=m", `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"a"},"secrets":[{"name":""}]}`, apply, 200, `k:{\"name\":\"\"}`, "", ""},
		{"the next write", "PATCH", accounts + "/a", `{"metadata":{"labels":{"a":"b"}}}`, merge, 200, `"secrets":[{"name":"s"},{}]`, "managedFields", ""},
	} {
		a.check(t, s)
	}
}
