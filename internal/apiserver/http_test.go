package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

// overHTTP serves the Server until the test ends.
func overHTTP(t *testing.T, s *Server, contentType string) (*rest.Config, kubernetes.Interface) {
	t.Helper()
	ts := httptest.NewServer(s.Handler())
	t.Cleanup(ts.Close)
	cfg := &rest.Config{Host: ts.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: contentType, AcceptContentTypes: contentType}}
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return cfg, c
}

func withServices(c *Config) {
	c.ServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.43.0.0/24")}
	c.Advertise = netip.MustParseAddrPort("192.0.2.1:6443")
}

func TestClientsReadAndWrite(t *testing.T) {
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		t.Run(contentType, func(t *testing.T) {
			_, c := overHTTP(t, newTestServer(t), contentType)
			ctx := t.Context()
			pods := c.CoreV1().Pods("default")
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{GenerateName: "web-", Labels: map[string]string{"app": "web"}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
			w, err := pods.Watch(ctx, metav1.ListOptions{LabelSelector: "app=web"})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			made, err := pods.Create(ctx, pod, metav1.CreateOptions{})
			if err != nil || !strings.HasPrefix(made.Name, "web-") || len(made.Name) != 9 || made.Status.Phase != corev1.PodPending {
				t.Fatalf("create: %v %+v", err, made)
			}
			expect(t, w, watch.Added, made.Name)
			got, err := pods.Get(ctx, made.Name, metav1.GetOptions{})
			if err != nil || got.ResourceVersion != made.ResourceVersion || got.Spec.RestartPolicy != corev1.RestartPolicyAlways {
				t.Fatalf("get: %v %+v", err, got)
			}
			got.Labels["app"] = "other"
			if _, err = pods.Update(ctx, got, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
			expect(t, w, watch.Deleted, made.Name) // it no longer matches
			list, err := pods.List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Pending"})
			if err != nil || len(list.Items) != 1 || list.Items[0].Name != made.Name || list.ResourceVersion == "" {
				t.Fatalf("list: %v %+v", err, list)
			}
			zero := int64(0)
			if err := pods.Delete(ctx, made.Name, metav1.DeleteOptions{GracePeriodSeconds: &zero}); err != nil {
				t.Fatal(err)
			}
			if _, err := pods.Get(ctx, made.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Fatalf("get after delete: %v", err)
			}
		})
	}
}

func expect(t *testing.T, w watch.Interface, what watch.EventType, name string) {
	t.Helper()
	select {
	case ev := <-w.ResultChan():
		acc, ok := ev.Object.(metav1.Object)
		if ev.Type != what || !ok || name != "" && acc.GetName() != name {
			t.Fatalf("got %s %+v, want %s of %q", ev.Type, ev.Object, what, name)
		}
	case <-time.After(time.Minute):
		t.Fatalf("no %s event", what)
	}
}

func TestPagesOfAListHaveOneRevision(t *testing.T) {
	s := newTestServer(t)
	_, c := overHTTP(t, s, "application/json")
	ctx := t.Context()
	maps := c.CoreV1().ConfigMaps("default")
	for i := range 25 {
		if _, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m-%02d", i)}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	first, err := maps.List(ctx, metav1.ListOptions{Limit: 10})
	if err != nil || len(first.Items) != 10 || first.Continue == "" || first.RemainingItemCount == nil || *first.RemainingItemCount != 15 {
		t.Fatalf("first page: %v %+v", err, first.ListMeta)
	}
	if err := maps.Delete(ctx, "m-15", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	second, err := maps.List(ctx, metav1.ListOptions{Limit: 10, Continue: first.Continue})
	if err != nil || len(second.Items) != 10 || second.Items[5].Name != "m-15" || second.ResourceVersion != first.ResourceVersion {
		t.Fatalf("the second page is not of the same revision: %v %+v", err, second.ListMeta)
	}
	exact, err := maps.List(ctx, metav1.ListOptions{ResourceVersion: first.ResourceVersion, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
	if err != nil || len(exact.Items) != 25 {
		t.Fatalf("exact: %v, %d items", err, len(exact.Items))
	}
	newest, err := maps.List(ctx, metav1.ListOptions{})
	if err != nil || len(newest.Items) != 24 {
		t.Fatalf("newest: %v, %d items", err, len(newest.Items))
	}
}

func TestInitialEventsEndWithABookmark(t *testing.T) {
	s := newTestServer(t)
	_, c := overHTTP(t, s, "application/json")
	ctx := t.Context()
	maps := c.CoreV1().ConfigMaps("default")
	if _, err := maps.Create(ctx, configMap("one"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	yes := true
	w, err := maps.Watch(ctx, metav1.ListOptions{SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	expect(t, w, watch.Added, "one")
	ev := <-w.ResultChan()
	if ev.Type != watch.Bookmark || ev.Object.(*corev1.ConfigMap).Annotations[metav1.InitialEventsAnnotationKey] != "true" {
		t.Fatalf("no bookmark after the initial events: %+v", ev)
	}
	if _, err := maps.Create(ctx, configMap("two"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect(t, w, watch.Added, "two")
}

func TestFinalizersDelayDeletion(t *testing.T) {
	_, c := overHTTP(t, newTestServer(t), "application/json")
	ctx := t.Context()
	maps := c.CoreV1().ConfigMaps("default")
	cm := configMap("held")
	cm.Finalizers = []string{"example.com/hold"}
	if _, err := maps.Create(ctx, cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(ctx, "held", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	held, err := maps.Get(ctx, "held", metav1.GetOptions{})
	if err != nil || held.DeletionTimestamp == nil || *held.DeletionGracePeriodSeconds != 0 {
		t.Fatalf("the object does not wait for its finalizer: %v %+v", err, held)
	}
	held.Finalizers = nil
	if _, err := maps.Update(ctx, held, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := maps.Get(ctx, "held", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("the object is not gone: %v", err)
	}
}

func TestServicesAllocateAndReleaseAddresses(t *testing.T) {
	s := newTestServer(t, withServices)
	if err := s.boot.create(t.Context(), s.boot.objects()); err != nil {
		t.Fatal(err)
	}
	_, c := overHTTP(t, s, "application/json")
	ctx := t.Context()
	services := c.CoreV1().Services("default")
	kubernetes, err := services.Get(ctx, "kubernetes", metav1.GetOptions{})
	if err != nil || kubernetes.Spec.ClusterIP != "10.43.0.1" {
		t.Fatalf("kubernetes: %v %+v", err, kubernetes.Spec)
	}
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort,
		Ports: []corev1.ServicePort{{Name: "t", Port: 53, Protocol: "TCP"}, {Name: "u", Port: 53, Protocol: "UDP"}}}}
	made, err := services.Create(ctx, svc, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if made.Spec.ClusterIP == "" || made.Spec.Ports[0].NodePort == 0 || made.Spec.Ports[0].NodePort != made.Spec.Ports[1].NodePort {
		t.Fatalf("addresses and ports: %+v", made.Spec)
	}
	if _, err := c.NetworkingV1().IPAddresses().Get(ctx, made.Spec.ClusterIP, metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	again := svc.DeepCopy()
	again.Name, again.Spec.ClusterIP = "other", made.Spec.ClusterIP
	if _, err := services.Create(ctx, again, metav1.CreateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "provided IP is already allocated") {
		t.Fatalf("a duplicate address: %v", err)
	}
	again.Spec.ClusterIP, again.Spec.Ports[0].NodePort = "", made.Spec.Ports[0].NodePort
	if _, err := services.Create(ctx, again, metav1.CreateOptions{}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "provided port is already allocated") {
		t.Fatalf("a duplicate port: %v", err)
	}
	if err := services.Delete(ctx, "web", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.NetworkingV1().IPAddresses().Get(ctx, made.Spec.ClusterIP, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("the address is still taken: %v", err)
	}
	if _, err := services.Create(ctx, again, metav1.CreateOptions{}); err != nil {
		t.Fatalf("the port was not released: %v", err)
	}
}

func TestConcurrentServicesGetDifferentAddresses(t *testing.T) {
	s := newTestServer(t, withServices)
	_, c := overHTTP(t, s, "application/json")
	const n = 60
	type result struct {
		ip   string
		port int32
		err  error
	}
	results := make(chan result, n)
	for i := range n {
		go func() {
			svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("s-%d", i)}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80}}}}
			made, err := c.CoreV1().Services("default").Create(context.WithoutCancel(t.Context()), svc, metav1.CreateOptions{})
			if err != nil {
				results <- result{err: err}
				return
			}
			results <- result{ip: made.Spec.ClusterIP, port: made.Spec.Ports[0].NodePort}
		}()
	}
	seen := map[any]bool{}
	for range n {
		r := <-results
		if r.err != nil {
			t.Fatal(r.err)
		}
		if seen[r.ip] || seen[r.port] {
			t.Fatalf("allocated twice: %+v", r)
		}
		seen[r.ip], seen[r.port] = true, true
	}
}

func TestUnstructuredAndMetadataClients(t *testing.T) {
	cfg, _ := overHTTP(t, newTestServer(t), "application/json")
	ctx := t.Context()
	d, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	deployments := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	obj := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},
		"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`), obj); err != nil {
		t.Fatal(err)
	}
	made, err := d.Resource(deployments).Namespace("default").Create(ctx, obj, metav1.CreateOptions{})
	if err != nil || made.GetGeneration() != 1 {
		t.Fatalf("create: %v %v", err, made)
	}
	patched, err := d.Resource(deployments).Namespace("default").Patch(ctx, "d", types.StrategicMergePatchType,
		[]byte(`{"spec":{"template":{"spec":{"containers":[{"name":"c","env":[{"name":"A","value":"1"}]}]}}}}`), metav1.PatchOptions{})
	if err != nil || patched.GetGeneration() != 2 {
		t.Fatalf("patch: %v %v", err, patched)
	}
	m, err := metadata.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	list, err := m.Resource(deployments).Namespace("default").List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "d" {
		t.Fatalf("metadata list: %v %v", err, list)
	}
	applied := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": map[string]any{"name": "d"}, "spec": map[string]any{"replicas": int64(3)}}}
	_, err = d.Resource(deployments).Namespace("default").Apply(ctx, "d", applied, metav1.ApplyOptions{FieldManager: "me"})
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), ".spec.replicas") {
		t.Fatalf("apply of another manager's field: %v", err)
	}
	out, err := d.Resource(deployments).Namespace("default").Apply(ctx, "d", applied, metav1.ApplyOptions{FieldManager: "me", Force: true})
	if err != nil {
		t.Fatal(err)
	}
	if n, _, _ := unstructured.NestedInt64(out.Object, "spec", "replicas"); n != 3 {
		t.Fatalf("apply: %v", out.Object["spec"])
	}
}

// do sends a plain request and returns the response's code and body.
func do(t *testing.T, s *Server, method, path, body string, header ...string) (int, http.Header, string) {
	t.Helper()
	r := httptest.NewRequest(method, path, bytes.NewBufferString(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	out, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, w.Header(), string(out)
}

func TestErrorsAreUpstreams(t *testing.T) {
	t.Parallel()
	s := newTestServer(t)
	const maps = "/api/v1/namespaces/default/configmaps"
	if code, _, body := do(t, s, "POST", maps, `{"metadata":{"name":"a"},"data":{"x":"1"}}`); code != 201 {
		t.Fatal(body)
	}
	jsonPatch, mergePatch := []string{"Content-Type", "application/json-patch+json"}, []string{"Content-Type", "application/merge-patch+json"}
	_, _, made := do(t, s, "POST", "/api/v1/namespaces/default/replicationcontrollers",
		`{"metadata":{"name":"r"},"spec":{"selector":{"a":"b"},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
	_, uid, _ := strings.Cut(made, `"uid":"`)
	uid, _, _ = strings.Cut(uid, `"`)
	tests := []struct {
		name, method, path, body string
		header                   []string
		code                     int
		reason, message          string
	}{
		{name: "an object that is not there", method: "GET", path: maps + "/none", code: 404, reason: "NotFound", message: `configmaps "none" not found`},
		{name: "a resource that is not there", method: "GET", path: "/api/v1/nope", code: 404, reason: "NotFound", message: "the server could not find the requested resource"},
		{name: "a body of another kind", method: "POST", path: maps, body: `{"apiVersion":"v1","kind":"Pod"}`, code: 400, reason: "BadRequest",
			message: `Pod in version "v1" cannot be handled as a ConfigMap: converting (v1.Pod) to (core.ConfigMap): unknown conversion`},
		{name: "a namespace other than the path's", method: "POST", path: maps, body: `{"metadata":{"name":"b","namespace":"x"}}`, code: 400, reason: "BadRequest",
			message: "the namespace of the provided object does not match the namespace sent on the request"},
		{name: "a version that is none", method: "POST", path: maps, body: `{"apiVersion":"a/b/c"}`, code: 400, reason: "BadRequest",
			message: `the object provided is unrecognized (must be of type ConfigMap): unexpected GroupVersion string: a/b/c ({"apiVersion":"a/b/c"})`},
		{name: "an event of the newer group", method: "POST", path: "/apis/events.k8s.io/v1/namespaces/default/events", body: `{"metadata":{"name":"e"},"type":"Normal"}`, code: 422, reason: "Invalid",
			message: `Event "e" is invalid: eventTime: Required value`},
		{name: "deleting with a pod for options", method: "DELETE", path: maps + "/a", body: `{"kind":"Pod","apiVersion":"v1"}`, code: 400, reason: "BadRequest",
			message: `no kind "Pod" is registered for version "v1" in scheme "pkg/runtime/scheme.go:111"`},
		{name: "deleting with half a body", method: "DELETE", path: maps + "/a", body: `[`, code: 400, reason: "BadRequest",
			message: "couldn't get version/kind; json parse error: unexpected end of JSON input"},
		{name: "a revision that is none", method: "PUT", path: maps + "/a", body: `{"metadata":{"name":"a","resourceVersion":"x"}}`, code: 500,
			message: `strconv.ParseUint: parsing "x": invalid syntax`},
		{name: "no name", method: "POST", path: maps, body: `{}`, code: 422, reason: "Invalid",
			message: `ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required`},
		{name: "an unknown field when strict", method: "POST", path: maps + "?fieldValidation=Strict", body: `{"metadata":{"name":"b"},"foo":1}`, code: 400, reason: "BadRequest",
			message: `ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "foo"`},
		{name: "a media type that nobody has", method: "GET", path: maps, header: []string{"Accept", "text/x"}, code: 406, reason: "NotAcceptable",
			message: "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf, application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"},
		{name: "some media type of applications, which is not said in so many words", method: "GET", path: maps + "/none", header: []string{"Accept", "application/*"}, code: 406, reason: "NotAcceptable",
			message: "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf"},
		{name: "a watch as something else", method: "GET", path: maps + "?watch=1", header: []string{"Accept", "application/json;as=X;g=meta.k8s.io;v=v1"}, code: 406, reason: "NotAcceptable",
			message: "only the following media types are accepted: application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"},
		{name: "a deadline that is none", method: "GET", path: maps + "?timeout=x", code: 400, reason: "BadRequest", message: `invalid timeout specified in the request URL - time: invalid duration "x"`},
		{name: "a question about permissions with a name", method: "POST", path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body: `{"metadata":{"name":"x"},"spec":{"nonResourceAttributes":{"path":"/","verb":"get"}}}`, code: 422, reason: "Invalid",
			message: `.authorization.k8s.io "" is invalid: metadata: Invalid value: {"name":"x"}: must be empty`},
		{name: "a table of what is answered and not kept", method: "POST", path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body: `{"spec":{}}`,
			header: []string{"Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"}, code: 406, reason: "NotAcceptable",
			message: "only the following media types are accepted: application/json, application/yaml, application/vnd.kubernetes.protobuf"},
		{name: "a body of an unknown media type", method: "POST", path: maps, header: []string{"Content-Type", "text/x"}, code: 415, reason: "UnsupportedMediaType",
			message: "the body of the request was in an unknown format - accepted media types include: application/json, application/yaml, application/vnd.kubernetes.protobuf"},
		{name: "a revision that has not been reached", method: "GET", path: maps + "?resourceVersion=9999999&resourceVersionMatch=NotOlderThan", code: 504, reason: "Timeout",
			message: "Timeout: Too large resource version: 9999999, current: 3"},
		{name: "a match without a revision", method: "GET", path: maps + "?resourceVersionMatch=Exact", code: 422, reason: "Invalid",
			message: `ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided`},
		{name: "a patch of an unknown media type", method: "PATCH", path: maps + "/a", body: "{}", code: 415, reason: "UnsupportedMediaType", message: "415: Unsupported Media Type"},
		{name: "a JSON patch that is no list, for somebody who wants to know of fields", method: "PATCH", path: maps + "/a", body: "{}", header: jsonPatch, code: 400, reason: "BadRequest",
			message: "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp"},
		{name: "and of numbers", method: "PATCH", path: maps + "/a", body: "[1]", header: jsonPatch, code: 400, reason: "BadRequest",
			message: "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp"},
		{name: "whose operation is a number", method: "PATCH", path: maps + "/a", body: `[{"op":1,"path":"/data/y","value":"1"}]`, header: jsonPatch, code: 400, reason: "BadRequest",
			message: "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string"},
		{name: "and for somebody who does not", method: "PATCH", path: maps + "/a?fieldValidation=Ignore", body: "{}", header: jsonPatch, code: 400, reason: "BadRequest",
			message: "json: cannot unmarshal object into Go value of type jsonpatch.Patch"},
		{name: "a JSON patch that takes the name away", method: "PATCH", path: maps + "/a", body: `[{"op":"replace","path":"","value":{}}]`, header: jsonPatch, code: 400, reason: "BadRequest",
			message: "the name of the object (a based on URL) was undeterminable: name must be provided"},
		{name: "a merge patch that is broken, and nobody wants to know of fields", method: "PATCH", path: maps + "/a?fieldValidation=Ignore", body: "{", header: mergePatch, code: 400, reason: "BadRequest",
			message: "Invalid JSON Patch"},
		{name: "a strategic patch that is broken", method: "PATCH", path: maps + "/a", body: "k", header: []string{"Content-Type", "application/strategic-merge-patch+json"}, code: 400, reason: "BadRequest",
			message: "invalid character 'k' looking for beginning of value"},
		{name: "a strategic patch with a field twice", method: "PATCH", path: maps + "/a?fieldValidation=Strict", body: `{"x":1,"x":2}`, header: []string{"Content-Type", "application/strategic-merge-patch+json"}, code: 422, reason: "Invalid",
			message: ` "" is invalid: patch: Invalid value: "map[x:2]": strict decoding error: duplicate field "x", unknown field "x"`},
		{name: "an apply of a list", method: "PATCH", path: maps + "/a?fieldManager=m", body: "[]", header: []string{"Content-Type", "application/apply-patch+yaml"}, code: 400, reason: "BadRequest",
			message: "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type map[string]interface {}"},
		{name: "a watch that goes on where a list ended", method: "GET", path: maps + "?watch=1&continue=x", code: 422, reason: "Invalid",
			message: `ListOptions.meta.k8s.io "" is invalid: resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is provided`},
		{name: "a scale of another object", method: "PATCH", path: "/api/v1/namespaces/default/replicationcontrollers/r/scale", body: `{"metadata":{"uid":"other"}}`, header: mergePatch, code: 409, reason: "Conflict",
			message: `Operation cannot be fulfilled on replicationcontrollers/scale "r": Precondition failed: UID in precondition: other, UID in object meta: ` + uid},
		{name: "a scale whose metadata are wrong", method: "PATCH", path: "/api/v1/namespaces/default/replicationcontrollers/r/scale", body: `{"metadata":{"labels":{"a b":""}}}`, header: mergePatch, code: 422, reason: "Invalid",
			message: `Scale.autoscaling "r" is invalid: metadata.labels: Invalid value: "a b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`},
		{name: "an applied scale with a field that no scale has", method: "PATCH", path: "/api/v1/namespaces/default/replicationcontrollers/r/scale?fieldManager=m", body: `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"r"},"foo":1}`,
			header: []string{"Content-Type", "application/apply-patch+yaml"}, code: 500,
			message: "failed to create typed patch object (/r; autoscaling/v1, Kind=Scale): .foo: field not declared in schema"},
		{name: "a field that can not be selected by", method: "GET", path: maps + "?fieldSelector=data=x", code: 400, reason: "BadRequest",
			message: `"data" is not a known field selector: only "metadata.name", "metadata.namespace"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, _, body := do(t, s, tt.method, tt.path, tt.body, tt.header...)
			var status metav1.Status
			if err := json.Unmarshal([]byte(body), &status); err != nil {
				t.Fatalf("%v in %s", err, body)
			}
			if code != tt.code || int(status.Code) != tt.code || string(status.Reason) != tt.reason || status.Message != tt.message || status.APIVersion != "v1" {
				t.Fatalf("got %d %s\n%s", code, status.Reason, body)
			}
		})
	}
}

func TestStatusIsWrittenInTheVersionOfThePath(t *testing.T) {
	s := newTestServer(t)
	const path = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
	body := func(status string) string {
		return `{"apiVersion":"autoscaling/v1","kind":"HorizontalPodAutoscaler","metadata":{"name":"a"},"spec":{"maxReplicas":3,"scaleTargetRef":{"kind":"Deployment","name":"d","apiVersion":"apps/v1"}}` + status + `}`
	}
	if code, _, answer := do(t, s, "POST", path, body("")); code != 201 {
		t.Fatal(answer)
	}
	code, _, answer := do(t, s, "PUT", path+"/a/status", body(`,"status":{"currentReplicas":2,"desiredReplicas":3}`))
	if code != 200 || !strings.Contains(answer, `"desiredReplicas":3`) || !strings.Contains(answer, `"apiVersion":"autoscaling/v1"`) {
		t.Fatal(code, answer)
	}
}

func TestNamespaceOfAClusterScopedObjectIsDropped(t *testing.T) {
	s := newTestServer(t)
	code, _, answer := do(t, s, "POST", "/apis/node.k8s.io/v1/runtimeclasses", `{"metadata":{"name":"a","namespace":"x"},"handler":"h"}`)
	if code != 201 || strings.Contains(answer, `"namespace"`) {
		t.Fatal(code, answer)
	}
}

func TestLargeBodyIsRefused(t *testing.T) {
	s := newTestServer(t)
	code, _, body := do(t, s, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a"},"data":{"x":"`+strings.Repeat("x", wire.MaxBody)+`"}}`)
	if code != http.StatusRequestEntityTooLarge || !strings.Contains(body, "limit is 3145728") {
		t.Fatal(code, body)
	}
}

func TestUnknownAndDuplicateFieldsCauseWarnings(t *testing.T) {
	s := newTestServer(t)
	code, header, body := do(t, s, "POST", "/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a","foo":1},"data":{"x":"1","x":"2"}}`)
	want := []string{`299 - "unknown field \"metadata.foo\""`, `299 - "duplicate field \"data.x\""`}
	if got := header.Values("Warning"); code != 201 || len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Fatalf("%d %q %s", code, got, body)
	}
}

func TestProtobufStreamCanBeRead(t *testing.T) {
	s := newTestServer(t)
	_, c := overHTTP(t, s, runtime.ContentTypeProtobuf)
	if _, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("one"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w, err := c.CoreV1().ConfigMaps("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	expect(t, w, watch.Added, "one")
}
