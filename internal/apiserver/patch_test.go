package apiserver

import (
	"testing"
)

func TestUnknownFieldsOfAJSONPatchAreReported(t *testing.T) {
	s := newTestServer(t)
	const (
		maps    = "/api/v1/namespaces/default/configmaps"
		unknown = `[{"op":"add","path":"/data/y","value":"1","foo":"x"},{"op":"add","path":"/more","value":1}]`
		double  = `[{"op":"add","path":"/data/y","value":"2","path":"/data/z"}]`
	)
	patch := []string{"Content-Type", "application/json-patch+json"}
	for _, q := range []answerCase{
		{"fields of the object", "POST", maps, `{"metadata":{"name":"m"},"data":{"x":"1"}}`, nil, 201, "", "", ""},
		{"strictly, before the object's fields", "PATCH", maps + "/m?fieldValidation=Strict", unknown, patch, 422, `json patch unknown field \"[0].foo\", unknown field \"more\"`, "", ""},
		{"strictly, duplicate fields", "PATCH", maps + "/m?fieldValidation=Strict", double, patch, 422, `json patch duplicate field \"[0].path\"`, "", ""},
		{"with a warning", "PATCH", maps + "/m?fieldValidation=Warn", double, patch, 200, `"z":"2"`, "", `json patch duplicate field \"[0].path\"`},
		{"ignored", "PATCH", maps + "/m?fieldValidation=Ignore", unknown, patch, 200, `"y":"1"`, "more", ""},
	} {
		q.check(t, s)
	}
}

// A merge key in a patch may have any type; upstream's handler panics.
func TestStrategicPatchWithIncomparableMergeKeysIsRefused(t *testing.T) {
	s := newTestServer(t)
	strategic := []string{"Content-Type", "application/strategic-merge-patch+json"}
	const maps = "/api/v1/namespaces/default/configmaps"
	const refused = "the merge keys of list elements cannot be compared"
	for _, a := range []answerCase{
		{"an object with an owner", "POST", maps, `{"metadata":{"name":"a","finalizers":["a.example/b"],"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"a","uid":"u"}]}}`, nil, 201, "", "", ""},
		{"a list", "PATCH", maps + "/a", `{"metadata":{"ownerReferences":[{"uid":[]}]}}`, strategic, 422, refused, "", ""},
		{"an object", "PATCH", maps + "/a", `{"metadata":{"ownerReferences":[{"uid":{}}]}}`, strategic, 422, refused, "", ""},
		{"an element order of lists", "PATCH", maps + "/a", `{"metadata":{"$setElementOrder/finalizers":[[]]}}`, strategic, 422, refused, "", ""},
		{"retained keys that are objects", "PATCH", maps + "/a", `{"metadata":{"$retainKeys":[{}]}}`, strategic, 422, refused, "", ""},
		{"a number as a UID", "PATCH", maps + "/a", `{"metadata":{"ownerReferences":[{"uid":5}]}}`, strategic, 422, "cannot convert int64", refused, ""},
		{"the object is unchanged", "GET", maps + "/a", "", nil, 200, `"uid":"u"`, "", ""},
	} {
		a.check(t, s)
	}
}

func TestMergePatchThatIsNoObjectIsRefused(t *testing.T) {
	s := newTestServer(t)
	merge := []string{"Content-Type", "application/merge-patch+json"}
	const maps = "/api/v1/namespaces/default/configmaps"
	for _, a := range []answerCase{
		{"an object", "POST", maps, `{"metadata":{"name":"a"}}`, nil, 201, "", "", ""},
		{"a list as a patch", "PATCH", maps + "/a?fieldValidation=Ignore", `[]`, merge, 422, "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct", "", ""},
	} {
		a.check(t, s)
	}
}
