package apiserver

import (
	"testing"
)

func TestDeleteOptionsMayBeOfTheirOwnGroup(t *testing.T) {
	s := newTestServer(t)
	const path = "/api/v1/namespaces/default/configmaps"
	for body, want := range map[string]int{
		`{"apiVersion":"meta.k8s.io/v1","kind":"DeleteOptions"}`:                            200,
		`{"apiVersion":"meta.k8s.io/v1","kind":"DeleteOptions","gracePeriodSeconds":"x"}`:   400,
		`{"apiVersion":"meta.k8s.io/v1","kind":"DeleteOptions","propagationPolicy":"Nope"}`: 422,
	} {
		do(t, s, "POST", path, `{"metadata":{"name":"x"}}`)
		if code, _, answer := do(t, s, "DELETE", path+"/x", body); code != want {
			t.Errorf("%s: %d %s", body, code, answer)
		}
	}
}

func TestDeletionOfJobsWarnsAboutTheirPods(t *testing.T) {
	s := newTestServer(t)
	const path, warning = "/apis/batch/v1/namespaces/default/jobs", "child pods are preserved by default when jobs are deleted"
	for _, a := range []answerCase{
		{"no job is selected", "DELETE", path + "?labelSelector=a", "", nil, 200, `"items":[]`, "", warning},
		{"an invalid continue token", "DELETE", path + "?continue=x", "", nil, 400, "invalid continue token", "", warning},
		{"an invalid selector", "DELETE", path + "?labelSelector=!!", "", nil, 400, "unable to parse requirement", "", ""},
		{"a propagation policy", "DELETE", path + "?propagationPolicy=Orphan", "", nil, 200, `"items":[]`, "", ""},
		{"a missing job", "DELETE", path + "/a", "", nil, 404, "not found", "", warning},
	} {
		a.check(t, s)
	}
}

// Only the first deletion of a namespace decides about its content.
func TestSecondDeletionOfANamespaceChangesNothing(t *testing.T) {
	s := newTestServer(t)
	const path = "/api/v1/namespaces/a"
	for _, a := range []answerCase{
		{"a namespace", "POST", "/api/v1/namespaces", `{"metadata":{"name":"a"}}`, nil, 201, "", "", ""},
		{"the namespace is deleted", "DELETE", path, `{"propagationPolicy":"Orphan"}`, nil, 200, `"finalizers":["orphan"]`, "", ""},
		{"it is deleted again", "DELETE", path, `{"propagationPolicy":"Foreground"}`, nil, 200, `"finalizers":["orphan"]`, "foregroundDeletion", ""},
	} {
		a.check(t, s)
	}
}

func TestPropagationSetsAndRemovesFinalizers(t *testing.T) {
	s := newTestServer(t)
	const maps, events, classes = "/api/v1/namespaces/default/configmaps", "/api/v1/namespaces/default/events", "/apis/storage.k8s.io/v1/storageclasses"
	for _, a := range []answerCase{
		{"an object with finalizers", "POST", maps, `{"metadata":{"name":"a","finalizers":["foregroundDeletion","a.example/b"]}}`, nil, 201, "", "", ""},
		{"an existing finalizer stays in its place", "DELETE", maps + "/a", `{"propagationPolicy":"Foreground"}`, nil, 200, `"finalizers":["foregroundDeletion","a.example/b"]`, "", ""},
		{"a new finalizer is the last", "DELETE", maps + "/a", `{"propagationPolicy":"Orphan"}`, nil, 200, `"finalizers":["a.example/b","orphan"]`, "", ""},
		{"an event with finalizers", "POST", events, `{"metadata":{"name":"e","finalizers":["orphan","a.example/b"]},"involvedObject":{"namespace":"default"}}`, nil, 201, "", "", ""},
		{"an event has no dependents", "DELETE", events + "/e", `{"propagationPolicy":"Orphan"}`, nil, 200, `"finalizers":["a.example/b"]`, "", ""},
		{"a storage class with a finalizer", "POST", classes, `{"metadata":{"name":"c","finalizers":["orphan"]},"provisioner":"p"}`, nil, 201, "", "", ""},
		{"a removed object is shown with its finalizers", "DELETE", classes + "/c", `{"propagationPolicy":"Background"}`, nil, 200, `"finalizers":["orphan"]`, "deletionTimestamp", ""},
		{"the storage class is gone", "GET", classes + "/c", "", nil, 404, "", "", ""},
	} {
		a.check(t, s)
	}
}

func TestDeleteCollectionAnswersInEveryFormat(t *testing.T) {
	s := newTestServer(t)
	const maps = "/api/v1/namespaces/default/configmaps"
	for _, a := range []answerCase{
		{"an object", "POST", maps, `{"metadata":{"name":"a","labels":{"a":"b"}}}`, nil, 201, "", "", ""},
		{"list options are validated before delete options", "DELETE", maps + "?resourceVersionMatch=Exact", `{"propagationPolicy":"Orphan","orphanDependents":true}`, nil, 422, "resourceVersionMatch is forbidden unless", "cannot be both set", ""},
		{"delete options of an unknown group", "DELETE", maps + "?labelSelector=none", `{"kind":"DeleteOptions","apiVersion":"nowhere.example/v1"}`, nil, 200, `"items":[]`, "", ""},
		{"as a table", "DELETE", maps + "?dryRun=All&labelSelector=a", "", []string{"Accept", "application/json;as=Table;g=meta.k8s.io;v=v1"}, 200, `"kind":"Table"`, "", ""},
		{"as metadata", "DELETE", maps + "?labelSelector=a", "", []string{"Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}, 200, `"kind":"PartialObjectMetadataList"`, "", ""},
		{"the object is gone", "GET", maps + "/a", "", nil, 404, "", "", ""},
	} {
		a.check(t, s)
	}
}

func TestInvalidDeleteOptionsAreRefused(t *testing.T) {
	s := newTestServer(t)
	const one = "/api/v1/namespaces/default/secrets/a"
	const version = `"message":"unexpected GroupVersion string: a/b/c"`
	yaml := []string{"Content-Type", "application/yaml"}
	for _, a := range []answerCase{
		{"a version of too many parts", "DELETE", one, `{"apiVersion":"a/b/c"}`, nil, 400, version, "", ""},
		{"an invalid version with the kind", "DELETE", one, `{"kind":"DeleteOptions","apiVersion":"a/b/c"}`, nil, 400, version, "", ""},
		{"an invalid version in YAML", "DELETE", one, "apiVersion: a/b/c\n", yaml, 400, version, "", ""},
		{"invalid YAML", "DELETE", one, "[", yaml, 400, `"message":"yaml: line 1: did not find expected node content"`, "", ""},
		{"options of any group", "DELETE", one, `{"kind":"DeleteOptions","apiVersion":"a.example/v1"}`, nil, 404, "not found", "", ""},
		{"options in YAML", "DELETE", one, "kind: DeleteOptions\napiVersion: v1\npropagationPolicy: Bad\n", yaml, 422, "propagationPolicy", "", ""},
		{"invalid options without a kind", "DELETE", one, "propagationPolicy: Bad\n", yaml, 422, "propagationPolicy", "", ""},
	} {
		a.check(t, s)
	}
}
