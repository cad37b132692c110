package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/apiserver/verb"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/cel"
	"github.com/knarr-project/knarr/internal/client"
)

// fuzzedKinds are kinds with special decoders: quantities, int-or-strings, raw JSON, recursive
// schemas.
var fuzzedKinds = []schema.GroupVersionKind{
	{Version: "v1", Kind: "Pod"}, {Version: "v1", Kind: "Service"}, {Version: "v1", Kind: "Secret"}, {Version: "v1", Kind: "ConfigMap"},
	{Group: "apps", Version: "v1", Kind: "Deployment"}, {Group: "autoscaling", Version: "v2", Kind: "HorizontalPodAutoscaler"},
	{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"},
	{Group: "admissionregistration.k8s.io", Version: "v1", Kind: "ValidatingAdmissionPolicy"},
}

var fuzzedBodies = []string{
	`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"1e3","memory":"1Gi"}}}]}}`,
	`{"apiVersion":"v1","kind":"Service","metadata":{"name":"a"},"spec":{"ports":[{"port":80,"targetPort":"http"}],"ports":[]}}`,
	`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a","unknown":1},"data":{"a":"eA=="}}`,
	"apiVersion: v1\nkind: ConfigMap\nmetadata: &m {name: a, labels: {a: b}}\ndata: {a: b}\ndata: {c: d}\nx: *m\n",
	`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","spec":{"versions":[{"schema":{"openAPIV3Schema":{"type":"object","not":{"not":{"items":[{}]}}}}}]}}`,
	"k8s\x00\n\x0f\n\x02v1\x12\tConfigMap\x12\x0b\n\t\n\x01a\x12\x00\x1a\x02dd",
	`{"metadata":{"managedFields":[{"manager":"a","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:a":{}}}}]}}`,
	strings.Repeat(`{"a":`, 100), strings.Repeat("[", 100), "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n",
}

func FuzzDecodeBody(f *testing.F) {
	for i, body := range fuzzedBodies {
		for kind := range fuzzedKinds {
			f.Add(byte(kind), byte(i), []byte(body))
		}
	}
	definition := schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	f.Add(byte(6), byte(2), wire.Envelope(definition, nested("", 2, 7, 4, 1, 28, 28, 28, 29)))
	f.Add(byte(0), byte(2), wire.Envelope(fuzzedKinds[0], nested("1e-1000", 2, 2, 8, 1, 2, 1)))
	medias := []string{wire.MediaJSON, wire.MediaYAML, wire.MediaProtobuf}
	f.Fuzz(func(t *testing.T, kind, media byte, body []byte) {
		gvk := fuzzedKinds[int(kind)%len(fuzzedKinds)]
		for _, validation := range []string{metav1.FieldValidationStrict, metav1.FieldValidationWarn, metav1.FieldValidationIgnore} {
			obj, err := wire.DecodeBody(medias[int(media)%len(medias)], body, gvk, validation, func(string) {})
			if err != nil {
				if !wire.IsStatus(err) {
					t.Errorf("the error is no Status: %v", err)
				}
				continue
			}
			if _, err := wire.EncodeAs(obj, gvk, wire.Format{Media: wire.MediaJSON}); err != nil {
				t.Errorf("the decoded object cannot be encoded: %v", err)
			}
		}
	})
}

// patchable is an operation on a Pod that is not stored.
func patchable(f *testing.F) (*verb.Operation, *corev1.Pod) {
	s := newTestServer(f)
	e, ok := s.endpoints.Find(corev1.SchemeGroupVersion.WithResource("pods"))
	if !ok {
		f.Fatal("the kind Pod is not served")
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", Labels: map[string]string{"a": "b"}, Finalizers: []string{"a/b"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i", Ports: []corev1.ContainerPort{{ContainerPort: 80}}, Env: []corev1.EnvVar{{Name: "E", Value: "v"}}}}}}
	e.ApplyDefaults(pod)
	return &verb.Operation{Engine: s.engine, Endpoint: e, Verb: "patch", Namespace: "default", Name: "a", GVK: e.GVK, FieldManager: "fuzz", Warn: func(string) {}}, pod
}

var fuzzedPatches = []struct {
	kind types.PatchType
	data string
}{
	{types.JSONPatchType, `[{"op":"test","path":"/metadata/name","value":"a"},{"op":"add","path":"/metadata/labels/x~1y","value":"z"},{"op":"copy","from":"/spec","path":"/metadata/annotations"}]`},
	{types.JSONPatchType, `[{"op":"add","path":"/spec/containers/-1","value":null},{"op":"move","from":"/spec/containers/0","path":"/spec/containers/-"},{"op":"remove","path":""}]`},
	{types.MergePatchType, `{"metadata":{"labels":{"a":null,"b":"c"}},"spec":{"containers":[]},"spec":{"nodeName":"n"}}`},
	{types.StrategicMergePatchType, `{"spec":{"$setElementOrder/containers":[{"name":"d"},{"name":"c"}],"containers":[{"name":"c","$patch":"delete"},{"name":"d","image":"i"}]}}`},
	{types.StrategicMergePatchType, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["a/b"],"$retainKeys":["x"]},"spec":{"$patch":"replace"}}`},
	{types.ApplyPatchType, "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: c, image: j, ports: [{containerPort: 80}]}]}\n"},
	{types.ApplyPatchType, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"},"spec":{"containers":[{"name":"c"},{"name":"c"},{}]}}`},
}

func FuzzPatch(f *testing.F) {
	for _, p := range fuzzedPatches {
		f.Add(string(p.kind), []byte(p.data))
	}
	op, pod := patchable(f)
	f.Fuzz(func(t *testing.T, kind string, data []byte) {
		p := verb.PatchRequest{Kind: types.PatchType(kind), Data: data, Validation: metav1.FieldValidationWarn}
		var out runtime.Object
		var err error
		if p.Kind == types.ApplyPatchType {
			out, err = op.ApplyPatch(pod.DeepCopy(), p)
		} else {
			out, err = op.Patched(pod.DeepCopy(), p)
		}
		if err != nil {
			return
		}
		if _, err := wire.EncodeAs(out, op.GVK, wire.Format{Media: wire.MediaProtobuf}); err != nil && !strings.Contains(err.Error(), "UTF-8") {
			t.Errorf("the patched object cannot be encoded: %v", err)
		}
	})
}

// FuzzManagedFields applies to and updates an object with arbitrary managed fields: they are kept
// in a form that can be stored, or dropped.
func FuzzManagedFields(f *testing.F) {
	const entry = `[{"manager":"a","operation":"Apply","apiVersion":"v1","time":"2020-01-01T00:00:00Z","fieldsType":"FieldsV1","fieldsV1":%s}]`
	for _, fields := range []string{
		`{"f:metadata":{"f:labels":{".":{},"f:a":{}},"f:finalizers":{"v:\"a/b\"":{}}},"f:spec":{"f:containers":{"k:{\"name\":\"c\"}":{".":{},"f:env":{"k:{\"name\":\"E\"}":{}},"f:image":{}}}}}`,
		`{"i:3":{},"f:spec":{"k:{}":{}},"v:1e999":{},"x":{}}`, `{"k:{\"a\":{\"b\":[1]}}":{"v:null":{}}}`, `[]`, strings.Repeat(`{"f:a":`, 100) + "{}" + strings.Repeat("}", 100),
	} {
		f.Add(fmt.Appendf(nil, entry, fields), []byte(fuzzedPatches[5].data))
	}
	f.Add([]byte(`[{"manager":"fuzz","operation":"Update","apiVersion":"v9","fieldsType":"FieldsV2"},{"operation":"x"}]`), []byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":null}}`))
	op, pod := patchable(f)
	f.Fuzz(func(t *testing.T, managed, data []byte) {
		old := pod.DeepCopy()
		if json.Unmarshal(managed, &old.ManagedFields) != nil {
			return
		}
		if out, err := op.ApplyPatch(old.DeepCopy(), verb.PatchRequest{Kind: types.ApplyPatchType, Data: data, Force: true}); err == nil {
			if _, err := wire.EncodeAs(out, op.GVK, wire.Format{Media: wire.MediaJSON}); err != nil {
				t.Errorf("the applied object cannot be encoded: %v", err)
			}
		}
		changed := old.DeepCopy()
		changed.Labels = map[string]string{"c": "d"}
		out := op.TrackFields(old, changed)
		if _, err := wire.EncodeAs(out, op.GVK, wire.Format{Media: wire.MediaJSON}); err != nil {
			t.Errorf("the updated object cannot be encoded: %v", err)
		}
	})
}

// FuzzAccept sends arbitrary Accept headers: the response has one of the server's formats.
func FuzzAccept(f *testing.F) {
	for _, accept := range []string{"application/json;as=Table;v=v1;g=meta.k8s.io,application/json", "application/vnd.kubernetes.protobuf;stream=watch;q=0.5, */*;q=NaN", "application/yaml;pretty=1",
		"application/json;as=PartialObjectMetadataList;v=v1beta1;g=meta.k8s.io;pretty", `application/json;a="\`, ",;=,*/*;q=1e999", "application/apply-patch+cbor, application/cbor"} {
		f.Add(accept, "pretty=true&includeObject=Object", "curl/8", true)
	}
	f.Fuzz(func(t *testing.T, accept, query, agent string, stream bool) {
		r := &http.Request{URL: &url.URL{Path: "/api/v1/pods", RawQuery: query}, Header: http.Header{"Accept": {accept}, "User-Agent": {agent}}}
		for _, pick := range []func(*http.Request, wire.AllowedTransforms, bool) (wire.Format, error){wire.Negotiate, wire.NegotiateCustom} {
			got, err := pick(r, wire.AllowedTransforms{Metadata: true, Table: true}, stream)
			if err != nil && !wire.IsStatus(err) {
				t.Errorf("the error is no Status: %v", err)
			}
			if err == nil && (!slices.Contains([]string{wire.MediaJSON, wire.MediaYAML, wire.MediaProtobuf}, got.Media) || stream && got.Media == wire.MediaYAML || got.Table() && got.Media == wire.MediaProtobuf) {
				t.Errorf("%q is answered with %+v", accept, got)
			}
		}
		wire.AcceptsAny(accept, wire.MediaJSON)
	})
}

func FuzzContinueToken(f *testing.F) {
	f.Add(wire.EncodeContinue("/registry/pods/default/a", "/registry/pods/", 7), "/registry/pods/")
	f.Add("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoiLi4vLi4vc2VjcmV0cyJ9", "/registry/pods/default/")
	f.Fuzz(func(t *testing.T, token, prefix string) {
		from, _, err := wire.DecodeContinue(token, prefix)
		if err == nil && (!strings.HasPrefix(from, prefix) || strings.Contains(from[len(prefix):]+"/", "/../")) {
			t.Errorf("a token leads from %q to %q", prefix, from)
		}
	})
}

func FuzzListQuery(f *testing.F) {
	for _, q := range []string{"labelSelector=a+in+(b,c),!d,e!=f", "fieldSelector=metadata.name%3Da,spec.nodeName!%3Db", "limit=5&continue=x", "watch=1&resourceVersion=7&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=1",
		"resourceVersion=0&resourceVersionMatch=Exact&timeoutSeconds=-1", "labelSelector=a>1,b<2,c notin (),d=,=e"} {
		f.Add(q)
	}
	op, pod := patchable(f)
	f.Fuzz(func(t *testing.T, text string) {
		values, _ := url.ParseQuery(text)
		var opts metav1.ListOptions
		if metav1.Convert_url_Values_To_v1_ListOptions(&values, &opts, nil) != nil {
			return
		}
		req, err := op.Endpoint.NewListRequest(opts)
		if err != nil {
			if !wire.IsStatus(err) {
				t.Errorf("the error is no Status: %v", err)
			}
			return
		}
		header := op.Endpoint.Header(pod)
		req.Labels.Matches(&header.Labels)
		req.Fields.Matches(&header.Fields)
	})
}

// FuzzRequests sends arbitrary requests to a whole server: it may refuse them, but must not panic
// or hang.
func FuzzRequests(f *testing.F) {
	cel.BoundSharedEnvironments() // as a process of knarr does
	for _, p := range fuzzedPatches {
		f.Add("PATCH", "/api/v1/namespaces/default/pods/a?fieldManager=f&force=true", string(p.kind), "application/json", []byte(p.data))
	}
	for i, body := range fuzzedBodies {
		path := []string{"/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/services?dryRun=All", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
			"/api/v1/namespaces/default/configmaps?fieldValidation=Strict"}[i%4]
		f.Add("POST", path, []string{wire.MediaJSON, wire.MediaYAML, wire.MediaProtobuf}[i%3], "application/json;as=Table;v=v1;g=meta.k8s.io", []byte(body))
	}
	f.Add("GET", "/api/v1/pods?watch=1&timeoutSeconds=1&resourceVersion=1", "", "application/vnd.kubernetes.protobuf;stream=watch", []byte(nil))
	f.Add("GET", "/apis/apps/v1/namespaces/x/deployments/y/scale?resourceVersion=9", "", "application/yaml, */*;q=0.1", []byte(nil))
	f.Add("DELETE", "/api/v1/namespaces/default/configmaps?labelSelector=a", "application/json", "", []byte(`{"preconditions":{"uid":"x"},"propagationPolicy":"Orphan"}`))
	f.Add("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", "application/json", "", []byte(`{"spec":{"user":"a","resourceAttributes":{"fieldSelector":{"requirements":[{"key":"a","operator":"In","values":["b"]}]}}}}`))
	f.Add("GET", "/openapi/v3/apis/apps/v1?hash=x", "", "application/com.github.proto-openapi.spec.v3.v1.0+protobuf", []byte(nil))
	s := newTestServer(f, withServices)
	if _, err := client.Create(f.Context(), s.ownClient(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "default"}}); err != nil && !apierrors.IsAlreadyExists(err) {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, method, target, contentType, accept string, body []byte) {
		if strings.Contains(target, "/debug/pprof") {
			return // profiles take as long as requested
		}
		u, err := url.ParseRequestURI(target)
		if err != nil || !strings.HasPrefix(u.Path, "/") {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		r := (&http.Request{Method: method, URL: u, RequestURI: target, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Host: "x", RemoteAddr: "192.0.2.7:1",
			Header: http.Header{"Content-Type": {contentType}, "Accept": {accept}}, Body: http.NoBody, ContentLength: int64(len(body))}).WithContext(ctx)
		if len(body) > 0 {
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		w := httptest.NewRecorder()
		began := time.Now()
		s.Handler().ServeHTTP(w, r)
		if took := time.Since(began); took > time.Minute {
			t.Errorf("%s %s took %s", method, target, took)
		}
		if strings.Contains(w.Body.String(), "caused apiserver to panic") {
			t.Error(fmt.Sprint("it panics: ", method, target))
		}
	})
}
