package apiserver

import (
	"strings"
	"testing"

	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// answerCase is one request and upstream's answer to it, as `make compare-api` found.
type answerCase struct {
	name               string
	method, path, body string
	header             []string
	code               int
	has                string // in the body
	hasNot             string
	warning            string
}

func (a *answerCase) check(t *testing.T, s *Server) {
	t.Helper()
	code, header, body := do(t, s, a.method, a.path, a.body, a.header...)
	warnings := strings.Join(header.Values("Warning"), "\n")
	switch {
	case code != a.code, !strings.Contains(body, a.has), a.hasNot != "" && strings.Contains(body, a.hasNot):
		t.Errorf("%s: got %d %.900s", a.name, code, body)
	case a.warning != "" && !strings.Contains(warnings, a.warning), a.warning == "" && warnings != "":
		t.Errorf("%s: got the warnings %q", a.name, warnings)
	}
}

func TestAnswersAreUpstreams(t *testing.T) {
	s := newTestServer(t)
	merge := []string{"Content-Type", "application/merge-patch+json"}
	yaml := []string{"Accept", "application/yaml"}
	const maps, volumes, nodes = "/api/v1/namespaces/default/configmaps", "/api/v1/persistentvolumes", "/api/v1/nodes"
	const scalers = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
	v2 := `{"apiVersion":"autoscaling/v2","kind":"HorizontalPodAutoscaler","metadata":{"name":"h"},"spec":{"maxReplicas":3,"scaleTargetRef":{"kind":"A","name":"b"},"targetCPUUtilizationPercentage":5}}`
	for _, a := range []answerCase{
		// Errors in the options of a watch come before errors in its format.
		{"a watch in YAML", "GET", maps + "?watch=1", "", yaml, 406, "only the following media types are accepted: application/json;stream=watch", "", ""},
		{"a watch in YAML with an invalid limit", "GET", maps + "?watch=1&limit=x", "", yaml, 400, `strconv.ParseInt: parsing "x"`, "", ""},
		{"a watch in YAML with a resourceVersionMatch", "GET", maps + "?watch=1&resourceVersionMatch=Exact", "", yaml, 422, "resourceVersionMatch is forbidden for watch", "", ""},
		{"a watch in YAML from an invalid revision", "GET", maps + "?watch=1&resourceVersion=x", "", yaml, 500, "strconv.ParseUint", "", ""},
		{"a watch in YAML by an unsupported field", "GET", maps + "?watch=1&fieldSelector=x=y", "", yaml, 400, "is not a known field selector", "", ""},
		// Media types and parameters in Accept are case-sensitive.
		{"a media type in upper case", "GET", maps, "", []string{"Accept", "application/JSON"}, 406, "406: Not Acceptable", "", ""},
		{"parameters in upper case are ignored", "GET", maps, "", []string{"Accept", "application/json;AS=Table;G=meta.k8s.io;V=v1"}, 200, `"kind":"ConfigMapList"`, "", ""},
		{"an unknown stream parameter", "GET", maps, "", []string{"Accept", "application/json;stream=x"}, 406, "only the following media types are accepted", "", ""},
		{"stream=watch for a list is ignored", "GET", maps, "", []string{"Accept", "application/json;stream=watch"}, 200, "ConfigMapList", "", ""},
		// Invalid revisions.
		{"an event at an invalid revision", "GET", "/api/v1/namespaces/default/events/a?resourceVersion=x", "", nil, 400, "invalid resource version: ", "", ""},
		{"another object at an invalid revision", "GET", maps + "/a?resourceVersion=x", "", nil, 500, "resourceVersion: Invalid value", "", ""},
		// The kind of a body.
		{"another kind of another group", "POST", maps, `{"apiVersion":"apps/v1","kind":"Deployment"}`, nil, 400, "converting (v1.Deployment) to (core.ConfigMap): unknown conversion", "", ""},
		{"another kind with an invalid field", "POST", maps, `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":"a"}}`, nil, 400, `Deployment in version \"v1\" cannot be handled as a ConfigMap: json: cannot unmarshal`, "", ""},
		{"a token request with the body of a pod", "POST", "/api/v1/namespaces/default/serviceaccounts/a/token", `{"apiVersion":"v1","kind":"Pod"}`, nil, 400, "converting (v1.Pod) to (authentication.TokenRequest)", "", ""},
		{"an eviction without a name", "POST", "/api/v1/namespaces/default/pods/a/eviction", `{}`, nil, 400, "name in URL does not match name in Eviction object", "", ""},
		{"an eviction of the older version", "POST", "/api/v1/namespaces/default/pods/a/eviction", `{"apiVersion":"policy/v1beta1","kind":"Eviction","metadata":{"name":"a"}}`, nil, 404, "pods \\\"a\\\" not found", "", ""},
		{"an eviction in another namespace", "POST", "/api/v1/namespaces/default/pods/a/eviction", `{"metadata":{"name":"a","namespace":"other"}}`, nil, 400, "the namespace of the provided object does not match", "", ""},
		{"a binding without a name", "POST", "/api/v1/namespaces/default/pods/a/binding", `{"target":{"name":"n"}}`, nil, 400, "name in URL does not match name in Binding object", "", ""},
		{"a binding in another namespace", "POST", "/api/v1/namespaces/default/pods/a/binding", `{"metadata":{"name":"a","namespace":"other"},"target":{"name":"n"}}`, nil, 400, "the namespace of the provided object does not match", "", ""},
		{"another version with an unknown field", "POST", scalers, v2, nil, 400, "the API version in the data (autoscaling/v2) does not match", "", "unknown field"},
		{"another version with an unknown field, strictly", "POST", scalers + "?fieldValidation=Strict", v2, nil, 400, `HorizontalPodAutoscaler in version \"v2\" cannot be handled as a HorizontalPodAutoscaler: strict decoding error`, "", ""},
		// Reviews are answered and not stored.
		{"a review in a namespace has that namespace", "POST", "/apis/authorization.k8s.io/v1/namespaces/default/localsubjectaccessreviews", `{"spec":{"user":"a","resourceAttributes":{"namespace":"default","verb":"get","resource":"pods"}}}`, nil, 201, `"metadata":{"namespace":"default"`, "", ""},
		{"metadata of events is of the core group", "GET", "/apis/events.k8s.io/v1/namespaces/default/events", "", []string{"Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"}, 406, "the requested object is a list (*core.EventList)", "", ""},
		{"a created object has no selfLink", "POST", maps, `{"metadata":{"name":"linked","selfLink":"x"}}`, nil, 201, `"name":"linked"`, "selfLink", ""},
		{"a dry run of a patch shows the selfLink", "PATCH", maps + "/linked?dryRun=All", `{"metadata":{"selfLink":"y"}}`, merge, 200, `"selfLink":"y"`, "", ""},
		{"a patch does not store the selfLink", "PATCH", maps + "/linked", `{"metadata":{"selfLink":"y"}}`, merge, 200, `"name":"linked"`, "selfLink", ""},
		{"a review with a uid and a time", "POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", `{"metadata":{"uid":"u","creationTimestamp":"2024-01-01T00:00:00Z"},"spec":{"user":"a","nonResourceAttributes":{"path":"/","verb":"get"}}}`, nil, 201, `"allowed":`, "2024-01-01", ""},
		// The phase of a volume.
		{"a volume", "POST", volumes, `{"metadata":{"name":"v"},"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"hostPath":{"path":"/x"}}}`, nil, 201, "Pending", "", ""},
		{"a new phase with its time", "PATCH", volumes + "/v/status", `{"status":{"phase":"Released","lastPhaseTransitionTime":"2024-01-01T00:00:00Z"}}`, merge, 200, `"lastPhaseTransitionTime":"2024-01-01T00:00:00Z"`, "", ""},
		{"a new time alone", "PATCH", volumes + "/v/status", `{"status":{"lastPhaseTransitionTime":"2023-01-01T00:00:00Z"}}`, merge, 200, `"lastPhaseTransitionTime":"2023-01-01T00:00:00Z"`, "", ""},
		{"a new phase alone sets the time", "PATCH", volumes + "/v/status", `{"status":{"phase":"Failed"}}`, merge, 200, `"phase":"Failed"`, "2023-01-01", ""},
		// An empty name of a field manager.
		{"a writer with an empty user agent", "POST", maps, `{"metadata":{"name":"nobody"},"data":{"a":"b"}}`, []string{"User-Agent", "/1"}, 201, `"manager":"unknown"`, "", ""},
		// Fields without effect.
		{"a node with an external ID", "POST", nodes, `{"metadata":{"name":"n"},"spec":{"externalID":"a"}}`, nil, 201, "externalID", "", "spec.externalID: this field is deprecated"},
		{"a patch of the node warns, too", "PATCH", nodes + "/n", `{"metadata":{"labels":{"a":"b"}}}`, merge, 200, "externalID", "", "spec.externalID: this field is deprecated"},
		{"a patch of its status does not", "PATCH", nodes + "/n/status", `{"metadata":{"labels":{"a":"c"}}}`, merge, 200, "externalID", "", ""},
		// Dependents of a namespace.
		{"a namespace", "POST", "/api/v1/namespaces", `{"metadata":{"name":"held","finalizers":["a.example/held"]}}`, nil, 201, "held", "", ""},
		{"orphanDependents=false deletes dependents first", "DELETE", "/api/v1/namespaces/held", `{"orphanDependents":false}`, nil, 202, `"finalizers":["a.example/held","foregroundDeletion"]`, "", ""},
		// The parent of an address.
		{"an address with a parent in upper case", "POST", "/apis/networking.k8s.io/v1/ipaddresses", `{"metadata":{"name":"192.168.0.1"},"spec":{"parentRef":{"resource":"Pods","namespace":"B","name":"A"}}}`, nil, 201, "Pods", "", ""},
		{"its table shows the resource in lower case", "GET", "/apis/networking.k8s.io/v1/ipaddresses/192.168.0.1?includeObject=None", "", []string{"Accept", "application/json;as=Table;g=meta.k8s.io;v=v1"}, 200, `"cells":["192.168.0.1","pods/B/A",`, "", ""},
		// Names in updates of a status.
		{"an invalid generateName in a status of a volume", "PATCH", volumes + "/v/status?dryRun=All", `{"metadata":{"generateName":"UPPER"}}`, merge, 200, "UPPER", "", ""},
		{"an invalid generateName in a volume", "PATCH", volumes + "/v?dryRun=All", `{"metadata":{"generateName":"UPPER"}}`, merge, 422, "metadata.generateName: Invalid value", "", ""},
		{"a definition with an invalid generateName", "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All", `{"metadata":{"name":"as.b.example","generateName":"a/"},"spec":{"group":"b.example","scope":"Cluster","names":{"plural":"as","kind":"A"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, nil, 422,
			`metadata.generateName: Invalid value: \"a/\": must be spec.names.plural+\".\"+spec.group`, "may not contain", ""},
		{"a conversion strategy None with an empty webhook", "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All", `{"metadata":{"name":"as.b.example"},"spec":{"conversion":{"strategy":"None","webhook":{"conversionReviewVersions":[]}},"group":"b.example","scope":"Cluster","names":{"plural":"as","kind":"A"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`, nil, 201,
			`"conversion":{"strategy":"None"}`, "webhook", ""},
		// The key in errors of dry runs.
		{"an update with another UID", "PUT", maps + "/nobody", `{"metadata":{"name":"nobody","uid":"u"}}`, nil, 409, "Key: /registry/configmaps/default/nobody,", "", ""},
		{"an update with another UID in a dry run", "PUT", maps + "/nobody?dryRun=All", `{"metadata":{"name":"nobody","uid":"u"}}`, nil, 409, "Key: /configmaps/default/nobody,", "", ""},
	} {
		a.check(t, s)
	}
}

func TestGenerationsChangeAsUpstreams(t *testing.T) {
	s := newTestServer(t)
	const slices, policies, hooks = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies", "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
	merge := []string{"Content-Type", "application/merge-patch+json"}
	for _, a := range []answerCase{
		{"a new slice", "POST", slices, `{"metadata":{"name":"a"},"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}]}`, nil, 201, `"generation":1`, "", ""},
		{"an annotation does not change the generation", "PATCH", slices + "/a", `{"metadata":{"annotations":{"a":"b"}}}`, merge, 200, `"generation":1`, "", ""},
		{"a label changes it", "PATCH", slices + "/a", `{"metadata":{"labels":{"a":"b"}}}`, merge, 200, `"generation":2`, "", ""},
		{"so does a field that is dropped", "PATCH", slices + "/a", `{"endpoints":[{"addresses":["10.0.0.1"],"deprecatedTopology":{"a":"b"}}]}`, merge, 200, `"generation":3`, "deprecatedTopology\":", ""},
		{"a new policy", "POST", policies, `{"metadata":{"name":"a"},"spec":{"podSelector":{}}}`, nil, 201, `"generation":1`, "", ""},
		{"an empty list instead of none changes the generation", "PATCH", policies + "/a", `{"spec":{"ingress":[]}}`, merge, 200, `"generation":2`, "", ""},
		{"a label of a policy does not", "PATCH", policies + "/a", `{"metadata":{"labels":{"a":"b"}}}`, merge, 200, `"generation":2`, "", ""},
		{"webhooks", "POST", hooks, `{"metadata":{"name":"a"}}`, nil, 201, `"generation":1`, "", ""},
		{"an empty list of webhooks does", "PATCH", hooks + "/a", `{"webhooks":[]}`, merge, 200, `"generation":2`, "", ""},
	} {
		a.check(t, s)
	}
}

func TestDeleteCollectionAtARevision(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	const maps = "/api/v1/namespaces/default/configmaps"
	for _, a := range []answerCase{
		{"one", "POST", maps, `{"metadata":{"name":"one"}}`, nil, 201, "", "", ""},
		{"a revision in the future", "DELETE", maps + "?resourceVersion=99999", "", nil, 504, "Too large resource version", "", ""},
		{"an invalid revision", "DELETE", maps + "?resourceVersion=x", "", nil, 400, "invalid resource version", "", ""},
		{"not older than a revision", "DELETE", maps + "?dryRun=All&resourceVersion=1&resourceVersionMatch=NotOlderThan", "", nil, 409, "does not match the ResourceVersion in record", "", ""},
		{"exactly the first revision, with no objects", "DELETE", maps + "?dryRun=All&resourceVersion=1", "", nil, 200, `"items":[]`, "", ""},
	} {
		a.check(t, s)
	}
}

func TestJobStatusCannotGoBack(t *testing.T) {
	s := newTestServer(t)
	merge := []string{"Content-Type", "application/merge-patch+json"}
	const jobs = "/apis/batch/v1/namespaces/default/jobs"
	job := func(name, more string) string {
		return `{"metadata":{"name":"` + name + `"},"spec":{` + more + `"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"a","image":"b"}]}}}}`
	}
	const began = `{"status":{"startTime":"2024-01-01T00:00:00Z","succeeded":2,"failed":3,"active":1}}`
	const target = `{"type":"FailureTarget","status":"True"}`
	status := func(name string) string { return jobs + "/" + name + "/status" }
	for _, a := range []answerCase{
		{"a job", "POST", jobs, job("j", ""), nil, 201, "", "", ""},
		{"the job starts", "PATCH", status("j"), began, merge, 200, "", "", ""},
		{"fewer failures", "PATCH", status("j"), `{"status":{"failed":2}}`, merge, 422, "cannot decrease the failed counter", "", ""},
		{"fewer successes", "PATCH", status("j"), `{"status":{"succeeded":1}}`, merge, 422, "cannot decrease the succeeded counter", "", ""},
		{"another start", "PATCH", status("j"), `{"status":{"startTime":"2025-01-01T00:00:00Z"}}`, merge, 422, "field is immutable for unsuspended job once set", "", ""},
		{"a failure target", "PATCH", status("j"), `{"status":{"conditions":[` + target + `]}}`, merge, 200, "", "", ""},
		{"the failure target is removed", "PATCH", status("j"), `{"status":{"conditions":[]}}`, merge, 422, "cannot disable the terminal FailureTarget=True condition", "", ""},
		{"failed without a target", "PATCH", status("j"), `{"status":{"active":0,"conditions":[{"type":"Failed","status":"True"}]}}`, merge, 422, "cannot set Failed=True condition without the FailureTarget=true condition", "", ""},
		{"failed with a target", "PATCH", status("j"), `{"status":{"active":0,"conditions":[` + target + `,{"type":"Failed","status":"True"}]}}`, merge, 200, "", "", ""},
		{"a suspended job", "POST", jobs, job("w", `"suspend":true,`), nil, 201, "", "", ""},
		{"the suspended job has a start time", "PATCH", status("w"), began, merge, 200, "", "", ""},
		{"its start time is reset", "PATCH", status("w"), `{"status":{"startTime":null}}`, merge, 200, "", "", ""},
		{"a second job", "POST", jobs, job("r", ""), nil, 201, "", "", ""},
		{"the second job is suspended", "PATCH", status("r"), `{"status":{"startTime":"2024-01-01T00:00:00Z","conditions":[{"type":"Suspended","status":"True"}]}}`, merge, 200, "", "", ""},
		{"it resumes with another start time", "PATCH", status("r"), `{"status":{"startTime":"2025-01-01T00:00:00Z","conditions":[{"type":"Suspended","status":"False"}]}}`, merge, 200, "2025-01-01", "", ""},
	} {
		a.check(t, s)
	}
}

func TestAnswersAboutPodsEventsAndAPIServicesAreUpstreams(t *testing.T) {
	s := newTestServer(t)
	merge := []string{"Content-Type", "application/merge-patch+json"}
	const pods, events = "/api/v1/namespaces/default/pods", "/apis/events.k8s.io/v1/namespaces/default/events"
	const services = "/apis/apiregistration.k8s.io/v1/apiservices"
	for _, a := range []answerCase{
		{"a pod", "POST", pods, `{"metadata":{"name":"p"},"spec":{"containers":[{"name":"a","image":"b"}]}}`, nil, 201, "", "", ""},
		{"a duplicate address", "PATCH", pods + "/p/status", `{"status":{"podIP":"1.1.1.1","podIPs":[{"ip":"1.1.1.1"},{"ip":"1.1.1.1"}]}}`, merge, 422, "may specify no more than one IP for each IP family", "Duplicate", ""},
		{"an invalid second address", "PATCH", pods + "/p/status", `{"status":{"hostIP":"1.1.1.1","hostIPs":[{"ip":"1.1.1.1"},{"ip":"x"}]}}`, merge, 422, "failed to check for dual stack with error:invalid IP[1]: x", "", ""},
		{"an invalid only address", "PATCH", pods + "/p/status", `{"status":{"hostIP":"x","hostIPs":[{"ip":"x"}]}}`, merge, 422, "must be a valid IP address", "dual stack", ""},
		{"a log of one stream", "GET", pods + "/p/log?stream=Stdout", "", nil, 422, "stream: Forbidden: may not be specified", "", ""},
		{"a log with an empty stream", "GET", pods + "/p/log?stream=", "", nil, 422, "stream: Forbidden: may not be specified", "", ""},
		{"a grace period in a status", "PATCH", pods + "/p/status", `{"metadata":{"deletionGracePeriodSeconds":0}}`, merge, 422, "metadata.deletionGracePeriodSeconds: Invalid value: 0: field is immutable", "", ""},
		{"a pod with a finalizer", "POST", pods, `{"metadata":{"name":"h","finalizers":["orphan"]},"spec":{"containers":[{"name":"a","image":"b"}]}}`, nil, 201, "", "", ""},
		{"deleted", "DELETE", pods + "/h", "", nil, 200, `"deletionGracePeriodSeconds":0`, "", ""},
		{"deleted again with another policy", "DELETE", pods + "/h", `{"propagationPolicy":"Foreground"}`, nil, 200, `"finalizers":["foregroundDeletion"]`, "", ""},
		{"deleted again with a grace period", "DELETE", pods + "/h", `{"gracePeriodSeconds":5}`, nil, 200, `"finalizers":["foregroundDeletion"]`, "", ""},
		{"deleted again without a finalizer", "DELETE", pods + "/h", `{"propagationPolicy":"Background"}`, nil, 200, "", "", ""},
		{"the pod is gone", "GET", pods + "/h", "", nil, 404, "", "", ""},
		{"delete options of another kind in YAML", "DELETE", pods + "/p", "apiVersion: v1\nkind: Secret\n", []string{"Content-Type", "application/yaml"}, 400, `"message":"no kind \"Secret\" is registered for version \"v1\"`, "", ""},
		{"delete options of another kind without version", "DELETE", pods + "/p", `{"kind":"Secret"}`, nil, 400, `no kind \"Secret\" is registered for version \"meta.k8s.io/v1\"`, "", ""},
		{"delete options of another group", "DELETE", pods + "/none", "apiVersion: coordination.k8s.io/v1\nkind: DeleteOptions\n", []string{"Content-Type", "application/yaml"}, 404, "", "", ""},
		{"an unknown group", "GET", "/apis/nowhere", "", []string{"Accept", "text/html"}, 404, "404 page not found", "", ""},
		{"a known group in an unsupported format", "GET", "/apis/apps", "", []string{"Accept", "text/html"}, 406, "only the following media types are accepted", "", ""},
		{"an unknown OpenAPI document", "GET", "/openapi", "", nil, 404, "404 page not found", "", ""},
		{"the version 2 document with a trailing slash", "GET", "/openapi/v2/", "", nil, 404, "404 page not found", "", ""},
		{"a version 3 document with a trailing slash", "GET", "/openapi/v3/api/", "", nil, 404, "", "404 page", ""},
		{"events by a field of the core group", "GET", events + "?fieldSelector=involvedObject.kind=Pod", "", nil, 400, "field label not supported: involvedObject.kind", "", ""},
		{"events by source, a field of the core group", "GET", events + "?fieldSelector=source=a", "", nil, 400, "field label not supported: source", "", ""},
		{"events by fields of their own group", "GET", events + "?fieldSelector=regarding.kind=Pod,reportingController=a", "", nil, 200, "EventList", "", ""},
		{"an event", "POST", "/api/v1/namespaces/default/events", `{"metadata":{"name":"e"},"involvedObject":{"namespace":"default"}}`, nil, 201, "", "", ""},
		{"a deletion with another UID", "DELETE", events + "/e", `{"preconditions":{"uid":"a"}}`, nil, 409, `on Event \"e\": the UID in the precondition (a)`, "", ""},
		{"an APIService without a name", "POST", services, `{"metadata":{},"spec":{"group":"g.example","version":"v1","groupPriorityMinimum":1,"versionPriority":1}}`, nil, 422, "name or generateName is required", "spec.version+", ""},
		{"a pod whose AppArmor profile is an annotation", "POST", pods, `{"metadata":{"name":"q","annotations":{"container.apparmor.security.beta.kubernetes.io/a":"localhost/x"}},"spec":{"containers":[{"name":"a","image":"b"}]}}`, nil, 201,
			`"appArmorProfile":{"type":"Localhost","localhostProfile":"x"}`, "", `metadata.annotations[container.apparmor.security.beta.kubernetes.io/a]: deprecated since v1.30; use the \"appArmorProfile\" field instead`},
		{"watch=x is a watch", "GET", pods + "?watch=x&limit=1&continue=x", "", nil, 422, "resourceVersionMatch is forbidden when continue is provided", "", ""},
		{"watch=False is a list", "GET", pods + "?watch=False", "", nil, 200, "PodList", "", ""},
	} {
		a.check(t, s)
	}
}

func TestBootstrapObjectsHaveManagedFields(t *testing.T) {
	s := newTestServer(t, withServices)
	if err := s.boot.create(t.Context(), append(s.boot.objects(), localServices(nil)...)); err != nil {
		t.Fatal(err)
	}
	const flow = "/apis/flowcontrol.apiserver.k8s.io/v1/"
	for _, a := range []answerCase{
		{"the spec of a FlowSchema", "GET", flow + "flowschemas/exempt", "", nil, 200, `"manager":"api-priority-and-fairness-config-producer-v1","operation":"Update"`, `"manager":"kube-apiserver"`, ""},
		{"the condition of a FlowSchema", "GET", flow + "flowschemas/exempt", "", nil, 200,
			`"fieldsV1":{"f:status":{"f:conditions":{"k:{\"type\":\"Dangling\"}":{".":{},"f:lastTransitionTime":{},"f:message":{},"f:reason":{},"f:status":{},"f:type":{}}}}},"subresource":"status"`, "", ""},
		{"a priority level", "GET", flow + "prioritylevelconfigurations/system", "", nil, 200, `"manager":"api-priority-and-fairness-config-producer-v1","operation":"Update"`, "config-consumer", ""},
		{"a priority class", "GET", "/apis/scheduling.k8s.io/v1/priorityclasses/system-node-critical", "", nil, 200, `"manager":"kube-apiserver","operation":"Update"`, "", ""},
		{"the ServiceCIDR", "GET", "/apis/networking.k8s.io/v1/servicecidrs/kubernetes", "", nil, 200, `"manager":"kubernetes-service-cidr-controller","operation":"Apply"`, "", ""},
		{"an IPAddress", "GET", "/apis/networking.k8s.io/v1/ipaddresses/10.43.0.1", "", nil, 200, `"f:parentRef":`, "", ""},
		{"a namespace", "GET", "/api/v1/namespaces/kube-system", "", nil, 200, `{"f:metadata":{"f:labels":{".":{},"f:kubernetes.io/metadata.name":{}}}}`, "f:spec", ""},
		{"the Service kubernetes", "GET", "/api/v1/namespaces/default/services/kubernetes", "", nil, 200, `"f:ipFamilyPolicy":{}`, "f:clusterIPs", ""},
		{"an APIService", "GET", "/apis/apiregistration.k8s.io/v1/apiservices/v1.apps", "", nil, 200, `"f:groupPriorityMinimum":{}`, "", ""},
	} {
		a.check(t, s)
	}
}

func TestDanglingConditionIsUpdatedWithItsTime(t *testing.T) {
	before, now := metav1.Unix(1, 0), metav1.Unix(2, 0)
	schema := &flowcontrolv1.FlowSchema{Spec: flowcontrolv1.FlowSchemaSpec{PriorityLevelConfiguration: flowcontrolv1.PriorityLevelConfigurationReference{Name: "a"}}}
	right, _ := wantedDanglingCondition(schema, false, before)
	for _, c := range []struct {
		name    string
		change  func(*flowcontrolv1.FlowSchemaCondition)
		changed bool
	}{
		{"the right condition stays", func(*flowcontrolv1.FlowSchemaCondition) {}, false},
		{"another time stays", func(c *flowcontrolv1.FlowSchemaCondition) { c.LastTransitionTime = metav1.Time{} }, false},
		{"another message is corrected", func(c *flowcontrolv1.FlowSchemaCondition) { c.Message = "m" }, true},
		{"another status is corrected", func(c *flowcontrolv1.FlowSchemaCondition) { c.Status = flowcontrolv1.ConditionTrue }, true},
	} {
		have := right
		c.change(&have)
		schema.Status.Conditions = []flowcontrolv1.FlowSchemaCondition{have}
		want, changed := wantedDanglingCondition(schema, false, now)
		if changed != c.changed || !want.LastTransitionTime.Equal(&now) {
			t.Errorf("%s: changed %v, %+v", c.name, changed, want)
		}
	}
}

func TestErrorsNameKindsAsUpstream(t *testing.T) {
	s := newTestServer(t)
	const events = "/apis/events.k8s.io/v1/namespaces/default/events"
	for _, a := range []answerCase{
		{"a kind with a slash and an invalid version", "POST", "/api/v1/namespaces", `{"apiVersion":"v1/","kind":"Namespace/"}`, nil, 400, `Namespace/ in version \"\" cannot be handled as a Namespace: Object 'apiVersion' is missing`, "", ""},
		{"an invalid version", "POST", "/api/v1/namespaces", `{"apiVersion":"v1/"}`, nil, 400, `"message":"Namespace in version \"\" cannot be handled as a Namespace: Object 'apiVersion' is missing`, "", ""},
		{"an event", "POST", "/api/v1/namespaces/default/events", `{"metadata":{"name":"e"},"involvedObject":{"namespace":"default"}}`, nil, 201, "", "", ""},
		{"an event as a list", "GET", events + "/e", "", []string{"Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}, 406, "the requested object is not a list (*core.Event)", "", ""},
	} {
		a.check(t, s)
	}
}

func TestCreatesByUpdateAreUpstreams(t *testing.T) {
	s := newTestServer(t)
	const classes, maps = "/apis/node.k8s.io/v1/runtimeclasses", "/api/v1/namespaces/default/configmaps"
	for _, a := range []answerCase{
		{"an update creates a runtime class", "PUT", classes + "/a", `{"metadata":{"name":"a"},"handler":"h"}`, nil, 201, "", "", ""},
		{"an update with a UID does not", "PUT", classes + "/b", `{"metadata":{"name":"b","uid":"u"},"handler":"h"}`, nil, 409, "StorageError: invalid object, Code: 4, Key: ", "", ""},
		{"a kind in another case counts", "POST", maps, `{"kind":"ConfigMap","apiVersion":"v1","Kind":"x","metadata":{"name":"a"}}`, nil, 400, `no kind \"x\" is registered`, "", ""},
	} {
		a.check(t, s)
	}
}
