package apiserver

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestDeletionOfJobsWarnsAboutTheirPods(t *testing.T) {
	s := newTestServer(t)
	const path, warning = "/apis/batch/v1/namespaces/default/jobs", "child pods are preserved by default when jobs are deleted"
	for _, a := range []asked{
		{"no job is selected", "DELETE", path + "?labelSelector=a", "", nil, 200, `"items":[]`, "", warning},
		{"an invalid continue token", "DELETE", path + "?continue=x", "", nil, 400, "invalid continue token", "", warning},
		{"an invalid selector", "DELETE", path + "?labelSelector=!!", "", nil, 400, "unable to parse requirement", "", ""},
		{"a propagation policy", "DELETE", path + "?propagationPolicy=Orphan", "", nil, 200, `"items":[]`, "", ""},
		{"a missing job", "DELETE", path + "/a", "", nil, 404, "not found", "", warning},
	} {
		a.check(t, s)
	}
}

func TestAddressOutsideTheRangesIsRefused(t *testing.T) {
	s := newTestServer(t, withServices)
	const services = "/api/v1/namespaces/default/services"
	body := func(ip string) string {
		return `{"metadata":{"name":"a"},"spec":{"clusterIP":"` + ip + `","ports":[{"port":80}]}}`
	}
	for _, a := range []asked{
		{"the unspecified address", "POST", services, body("0.0.0.0"), nil, 422, "failed to allocate IP 0.0.0.0: the provided network does not match the current range", "", ""},
		{"the range's own address", "POST", services, body("10.43.0.0"), nil, 422, "10.43.0.0: the provided network does not match the current range", "", ""},
		{"a Service", "POST", services, `{"metadata":{"name":"b"},"spec":{"ports":[{"port":80}]}}`, nil, 201, "", "", ""},
		{"a change of its address", "PATCH", services + "/b", `{"spec":{"clusterIP":"127.0.0.1"}}`, []string{"Content-Type", "application/merge-patch+json"}, 422, "spec.clusterIPs[0]: Invalid value: [\\\"127.0.0.1\\\"]: may not change once set", "current range", ""},
		{"a dry run names the range", "POST", services + "?dryRun=All", body("0.0.0.0"), nil, 422, "the provided IP (0.0.0.0) is not in the valid range. The range of valid IPs is 10.43.0.0/24", "", ""},
	} {
		a.check(t, s)
	}
}

// Upstream encodes bookmarks of its internal types, whose counts are no pointers.
func TestBookmarksHaveUpstreamsZeroCounts(t *testing.T) {
	s := newTestServer(t)
	for resource, has := range map[string]string{
		"deployments": `"spec":{"replicas":0,`, "replicasets": `"spec":{"replicas":0,`, "statefulsets": `"spec":{"replicas":0,`,
		"daemonsets": `"annotations":{"deprecated.daemonset.template.generation":"0"}`, "controllerrevisions": `"metadata":{"resourceVersion":"7"}`,
	} {
		e, ok := s.endpoints.find(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: resource})
		if !ok {
			t.Fatal(resource)
		}
		w := &watcher{op: s.engine.internal(e, "default", "")}
		body, err := e.encodeObject(w.bookmarkObject(7, false), jsonFormat)
		if err != nil || !strings.Contains(string(body), has) {
			t.Errorf("%s: %s %v", resource, body, err)
		}
	}
}

// A merge key in a patch may have any type; upstream's handler panics.
func TestStrategicPatchWithIncomparableMergeKeysIsRefused(t *testing.T) {
	s := newTestServer(t)
	strategic := []string{"Content-Type", "application/strategic-merge-patch+json"}
	const maps = "/api/v1/namespaces/default/configmaps"
	const refused = "the elements of a list can not be told apart"
	for _, a := range []asked{
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

// An apply may name an item by an empty string, which the object then omits: from the next write
// on, ownership of the item is unknown.
func TestManagedFieldsAreDroppedForItemsWithoutKey(t *testing.T) {
	s := newTestServer(t)
	merge, apply := []string{"Content-Type", "application/merge-patch+json"}, []string{"Content-Type", "application/apply-patch+yaml"}
	const accounts = "/api/v1/namespaces/default/serviceaccounts"
	for _, a := range []asked{
		{"an account", "POST", accounts, `{"metadata":{"name":"a"},"secrets":[{"name":"s"}]}`, nil, 201, "managedFields", "", ""},
		{"an applied secret without a name", "PATCH", accounts + "/a?fieldManager=m", `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"a"},"secrets":[{"name":""}]}`, apply, 200, `k:{\"name\":\"\"}`, "", ""},
		{"the next write", "PATCH", accounts + "/a", `{"metadata":{"labels":{"a":"b"}}}`, merge, 200, `"secrets":[{"name":"s"},{}]`, "managedFields", ""},
	} {
		a.check(t, s)
	}
}

const gadgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.stable.example.com}
spec:
  group: stable.example.com
  scope: Cluster
  names: {plural: gadgets, singular: gadget, kind: Gadget}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: &schema {type: object, properties: {spec: {type: object, properties: {template: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}}}}}}
  - name: v2
    served: true
    storage: false
    schema: {openAPIV3Schema: *schema}
`

func TestAppliedCustomResourceWithInvalidMetadata(t *testing.T) {
	a := newAPI(t)
	a.define(gadgets)
	for _, c := range []struct {
		name, version, object, metadata, template string
		code                                      int
		says                                      string
	}{
		{"an embedded apiVersion that is null", "v1", "a", "", `{apiVersion: null, kind: Pod}`, 422, `Gadget.stable.example.com "a" is invalid: spec.template.apiVersion: Invalid value: null: must be a string`},
		{"an embedded invalid time", "v1", "a", "", `{apiVersion: v1, kind: Pod, metadata: {creationTimestamp: x}}`, 422, `spec.template.metadata: Invalid value: {"creationTimestamp":"x"}: parsing time "x"`},
		{"an invalid field is dropped", "v1", "a", "deletionGracePeriodSeconds: 1.5", `{apiVersion: v1, kind: Pod}`, 201, ""},
		{"an invalid field fails the conversion", "v2", "b", "deletionGracePeriodSeconds: 1.5", `{apiVersion: v1, kind: Pod}`, 500, "json: cannot unmarshal number 1.5 into Go struct field ObjectMeta.deletionGracePeriodSeconds of type int64"},
		{"a valid object", "v2", "c", "", `{apiVersion: v1, kind: Pod}`, 201, ""},
		{"an invalid time in an update", "v2", "c", "deletionTimestamp: x", `{apiVersion: v1, kind: Pod}`, 500, `parsing time "x"`},
	} {
		body := fmt.Sprintf("{apiVersion: stable.example.com/%s, kind: Gadget, metadata: {name: %s, %s}, spec: {template: %s}}", c.version, c.object, c.metadata, c.template)
		code, got, _ := a.do("PATCH", "/apis/stable.example.com/"+c.version+"/gadgets/"+c.object+"?fieldManager=m&force=true", body, "Content-Type", "application/apply-patch+yaml")
		if code != c.code || c.says != "" && !strings.Contains(fmt.Sprint(got["message"]), c.says) {
			t.Errorf("%s: got %d %v", c.name, code, got["message"])
		}
	}
}

func TestErrorsShowYAMLWithoutKindAsSent(t *testing.T) {
	a := newAPI(t)
	a.define(crontabs)
	for _, c := range []struct{ query, body, says string }{
		{"", "---\n", "Object 'Kind' is missing in '---\n' (2d2d2d0a)"},
		{"", "a: 1", "Object 'Kind' is missing in 'a: 1' (613a2031)"},
		{"?fieldValidation=Ignore", "a: 1", `CronTab in version "v1" cannot be handled as a CronTab: Object 'Kind' is missing in '{"a":1}'`},
	} {
		code, got, _ := a.do("RAW", crontabsPath+c.query, c.body, "Content-Type", "application/yaml")
		if message := fmt.Sprint(got["message"]); code != http.StatusBadRequest || !strings.Contains(message, c.says) {
			t.Errorf("%q%s: got %d %s", c.body, c.query, code, message)
		}
	}
}

func TestErrorsNameKindsAsUpstream(t *testing.T) {
	s := newTestServer(t)
	const events = "/apis/events.k8s.io/v1/namespaces/default/events"
	for _, a := range []asked{
		{"a kind with a slash and an invalid version", "POST", "/api/v1/namespaces", `{"apiVersion":"v1/","kind":"Namespace/"}`, nil, 400, `Namespace/ in version \"\" cannot be handled as a Namespace: Object 'apiVersion' is missing`, "", ""},
		{"an invalid version", "POST", "/api/v1/namespaces", `{"apiVersion":"v1/"}`, nil, 400, `"message":"Namespace in version \"\" cannot be handled as a Namespace: Object 'apiVersion' is missing`, "", ""},
		{"an event", "POST", "/api/v1/namespaces/default/events", `{"metadata":{"name":"e"},"involvedObject":{"namespace":"default"}}`, nil, 201, "", "", ""},
		{"an event as a list", "GET", events + "/e", "", []string{"Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}, 406, "the requested object is not a list (*core.Event)", "", ""},
	} {
		a.check(t, s)
	}
}

// Only the first deletion of a namespace decides about its content.
func TestSecondDeletionOfANamespaceChangesNothing(t *testing.T) {
	s := newTestServer(t)
	const path = "/api/v1/namespaces/a"
	for _, a := range []asked{
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
	for _, a := range []asked{
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
	for _, a := range []asked{
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

func TestMergePatchThatIsNoObjectIsRefused(t *testing.T) {
	s := newTestServer(t)
	merge := []string{"Content-Type", "application/merge-patch+json"}
	const maps = "/api/v1/namespaces/default/configmaps"
	for _, a := range []asked{
		{"an object", "POST", maps, `{"metadata":{"name":"a"}}`, nil, 201, "", "", ""},
		{"a list as a patch", "PATCH", maps + "/a?fieldValidation=Ignore", `[]`, merge, 422, "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type struct", "", ""},
	} {
		a.check(t, s)
	}
}

func TestCreatesByUpdateAreUpstreams(t *testing.T) {
	s := newTestServer(t)
	const classes, maps = "/apis/node.k8s.io/v1/runtimeclasses", "/api/v1/namespaces/default/configmaps"
	for _, a := range []asked{
		{"an update creates a runtime class", "PUT", classes + "/a", `{"metadata":{"name":"a"},"handler":"h"}`, nil, 201, "", "", ""},
		{"an update with a UID does not", "PUT", classes + "/b", `{"metadata":{"name":"b","uid":"u"},"handler":"h"}`, nil, 409, "StorageError: invalid object, Code: 4, Key: ", "", ""},
		{"a kind in another case counts", "POST", maps, `{"kind":"ConfigMap","apiVersion":"v1","Kind":"x","metadata":{"name":"a"}}`, nil, 400, `no kind \"x\" is registered`, "", ""},
	} {
		a.check(t, s)
	}
}
