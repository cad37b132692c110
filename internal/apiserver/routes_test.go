package apiserver

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

const (
	noPath   = "the server could not find the requested resource"
	noMethod = "the server does not allow this method on the requested resource"
)

// refused sends requests with several methods and expects the same refusal each time.
func refused(t *testing.T, s *Server, methods, path string, code int, message string, header ...string) {
	t.Helper()
	for method := range strings.FieldsSeq(methods) {
		got, _, body := do(t, s, method, path, `{}`, header...)
		var status metav1.Status
		if method != http.MethodHead && message != "" {
			if err := json.Unmarshal([]byte(body), &status); err != nil {
				t.Fatalf("%s %s: %v in %s", method, path, err, body)
			}
		} else {
			status.Message = message
		}
		if got != code || status.Message != message {
			t.Errorf("%s %s: %d %q", method, path, got, status.Message)
		}
	}
}

func TestPathIsCheckedBeforeMethodAndBody(t *testing.T) {
	s := newTestServer(t)
	const apps, all = "/apis/apps/v1", "GET POST PUT PATCH DELETE OPTIONS HEAD PROPFIND TRACE"
	const sets = apps + "/namespaces/default/replicasets"
	patch := []string{"Content-Type", "application/merge-patch+json"}
	for _, tt := range []struct {
		name, methods, path string
		code                int
		message             string
	}{
		{"a collection cannot be replaced or patched", "PUT PATCH OPTIONS HEAD TRACE", sets, 405, noMethod},
		{"an object cannot be created by its own path", "POST OPTIONS HEAD", sets + "/x", 405, noMethod},
		{"a namespaced object without a namespace", all, apps + "/replicasets/x", 404, noPath},
		{"a subresource without a namespace", all, apps + "/replicasets/x/scale", 404, noPath},
		{"an unknown subresource", all, sets + "/x/nothing", 404, noPath},
		{"a path below a subresource", all, sets + "/x/status/x", 404, noPath},
		{"a cluster-scoped object in a namespace", all, "/api/v1/namespaces/default/nodes/x", 404, noPath},
		{"a watch of a subresource", all, apps + "/watch/replicasets/a/b/c", 404, noPath},
		{"a watch path only allows GET", "POST PUT PATCH DELETE HEAD", "/api/v1/watch/namespaces/default/pods/x", 405, noMethod},
		{"a kind that can only be created, without a namespace", all, "/api/v1/bindings", 404, noPath},
		{"an object of a kind that can only be created", all, "/apis/authentication.k8s.io/v1/tokenreviews/x", 404, noPath},
		{"an unknown version of a built-in group", all, "/apis/apps/v9", 404, noPath},
		{"a kind in an unknown version", all, "/apis/apps/v9/deployments", 404, noPath},
		{"an unknown version of the core group", all, "/api/v2", 404, noPath},
		{"a group version only allows GET", "POST PUT PATCH DELETE HEAD", apps, 405, noMethod},
		{"the server's version only allows GET", "POST PUT PATCH DELETE HEAD", "/version", 405, noMethod},
	} {
		t.Run(tt.name, func(t *testing.T) {
			refused(t, s, tt.methods, tt.path, tt.code, tt.message)
			refused(t, s, tt.methods, tt.path, tt.code, tt.message, patch...)
		})
	}
	refused(t, s, "PATCH", sets+"/x", 415, "415: Unsupported Media Type", "Accept", "text/html")
	refused(t, s, "GET", "/version", 415, "415: Unsupported Media Type", patch...)
	refused(t, s, "GET", "/version", 406, "406: Not Acceptable\n\nAvailable representations: application/json", "Accept", "text/html")
	refused(t, s, "GET", "/api", 406, "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, application/vnd.kubernetes.protobuf", "Accept", "application/*")
	for method := range strings.FieldsSeq("GET POST TRACE") {
		if code, _, body := do(t, s, method, "/apis/apps", ""); code != 200 || !strings.Contains(body, `"APIGroup"`) {
			t.Errorf("%s of a group: %d %s", method, code, body)
		}
	}
}

func TestErrorsHaveTheAcceptedFormat(t *testing.T) {
	s := newTestServer(t)
	for _, tt := range []struct{ method, path, accept, media string }{
		{"GET", "/api/v1/nodes/x", "application/yaml", wire.MediaYAML},
		{"GET", "/api/v1/nodes/x", "application/yaml;as=Table;g=meta.k8s.io;v=v1", wire.MediaJSON},
		{"HEAD", "/api/v1/nodes/x", "application/json;q=0.1, application/yaml", wire.MediaYAML},
		{"HEAD", "/api/v1", wire.MediaProtobuf, wire.MediaProtobuf},
		{"GET", "/apis/apps/v9/x", "application/yaml", wire.MediaYAML},
		{"GET", "/api/v1/nodes/x", "text/plain", wire.MediaJSON},
	} {
		if code, header, _ := do(t, s, tt.method, tt.path, "", "Accept", tt.accept); code < 400 || header.Get("Content-Type") != tt.media {
			t.Errorf("%s %s as %s: %d as %s", tt.method, tt.path, tt.accept, code, header.Get("Content-Type"))
		}
	}
}

func TestAcceptHeadersAreParsedAsUpstream(t *testing.T) {
	const none = ""
	for _, tt := range []struct{ accept, media, as string }{
		{"application/json;v=v1", none, ""},
		{"application/json;g=meta.k8s.io", none, ""},
		{"*/*;v=v1", none, ""},
		{"application/json;v=v1,application/yaml", wire.MediaYAML, ""},
		{"application/json;AS=Table;v=v1;g=meta.k8s.io", none, ""},
		{`application/json;as="Table";v=v1;g=meta.k8s.io`, none, ""},
		{"application/json;as = Table ;v=v1;g=meta.k8s.io", wire.MediaJSON, "Table"},
		{"application/json;as=PartialObjectMetadata;as=Table;v=v1;g=meta.k8s.io", wire.MediaJSON, "Table"},
		{"application/json;as=Table=x;v=v1;g=meta.k8s.io", none, ""},
		{"application/json;;", wire.MediaJSON, ""},
		{"application/json;as=;g=;v=;stream=", wire.MediaJSON, ""},
		{"application/json;foo;=x;g=a=b", wire.MediaJSON, ""},
		{"Application/JSON", none, ""},
		{"application/json;q=abc", wire.MediaJSON, ""},
		{"application/json;q=abc,application/yaml;q=0.1", wire.MediaYAML, ""},
		{"application/json;q=0", wire.MediaJSON, ""},
		{"application/json;q=,application/yaml", wire.MediaJSON, ""},
		{"application/json;Q=0.1,application/yaml;q=0.5", wire.MediaJSON, ""},
		{"application/json;q=NaN,application/yaml", wire.MediaJSON, ""},
		{"*/*;q=0.2,application/yaml;q=0.2", wire.MediaYAML, ""},
		{"application/*,application/yaml;q=0.9", wire.MediaJSON, ""},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept", tt.accept)
		f, err := wire.Negotiate(r, wire.AllowedTransforms{Metadata: true, Table: true}, false)
		if (err != nil) != (tt.media == none) || err == nil && (f.Media != tt.media || f.As != tt.as) {
			t.Errorf("%s: %+v, %v", tt.accept, f, err)
		}
	}
}

func TestDeprecationWarningsNeedAValidRequest(t *testing.T) {
	s := newTestServer(t)
	const path = "/api/v1/namespaces/default/endpoints"
	for _, tt := range []struct {
		method, accept string
		warns          bool
	}{{"GET", "application/json", true}, {"GET", "text/html", false}, {"PUT", "application/json", false}} {
		_, header, _ := do(t, s, tt.method, path, "{}", "Accept", tt.accept)
		if warns := header.Get("Warning") != ""; warns != tt.warns {
			t.Errorf("%s as %s: warning %q", tt.method, tt.accept, header.Get("Warning"))
		}
	}
}

func TestPathsOfCustomResources(t *testing.T) {
	a := newAPI(t)
	a.define(crontabs)
	notFound, noVerb := " not found", " is not supported on resources of kind"
	for _, tt := range []struct {
		name, method, path string
		code               int
		message            string
	}{
		{"an update of the collection", "PUT", "", 400, "name must be provided"},
		{"an unknown method", "TRACE", "/x", 405, noVerb},
		{"an unknown subresource", "OPTIONS", "/x/nothing", 404, notFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, out, _ := a.do(tt.method, crontabsPath+tt.path, ""); at(out, "code") != float64(tt.code) || !strings.Contains(at(out, "message").(string), tt.message) {
				t.Errorf("%v", out)
			}
		})
	}
	a.want(http.StatusCreated, "POST", crontabsPath+"/another", crontab)
	if out := a.want(http.StatusOK, "GET", crontabsPath+"/one/status/x", ""); at(out, "kind") != "CronTab" {
		t.Errorf("below a subresource: %v", out)
	}
	applied := "{apiVersion: stable.example.com/v1, kind: CronTab, metadata: {name: one, deletionGracePeriodSeconds: 1.5}, spec: {cronSpec: x}}"
	a.want(http.StatusOK, "PATCH", crontabsPath+"/one?fieldManager=m&force=true", applied, "Content-Type", "application/apply-patch+yaml")
	out := a.want(http.StatusInternalServerError, "GET", crontabsPath+"/one", "", "Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	if at(out, "message") != "content is not a list" {
		t.Errorf("one object as a list: %v", out)
	}
}
