package apiserver

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
)

const benchPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p-%d","namespace":"default","labels":{"app":"bench","n":"%d"}},
"spec":{"containers":[{"name":"c","image":"registry.example/app:1","command":["/app","serve"],"env":[{"name":"A","value":"1"},{"name":"B","value":"2"}],
"resources":{"requests":{"cpu":"100m","memory":"64Mi"},"limits":{"memory":"128Mi"}},"ports":[{"containerPort":8080}],
"readinessProbe":{"httpGet":{"path":"/ready","port":8080}}}],"terminationGracePeriodSeconds":30}}`

type discard struct{ http.ResponseWriter }

func (discard) WriteHeader(int) {}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

func (d discard) Flush() {}

func serve(b testing.TB, s *Server, method, path, contentType, body string) {
	r := httptest.NewRequest(method, path, bytes.NewBufferString(body))
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("User-Agent", "bench/1")
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	if w.Code >= 300 {
		out, _ := io.ReadAll(w.Body)
		b.Fatal(w.Code, string(out))
	}
}

func benchServer(b *testing.B) *Server {
	return newTestServer(b)
}

func BenchmarkCreatePod(b *testing.B) {
	s := benchServer(b)
	var n atomic.Int64
	b.SetParallelism(32)
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			i := n.Add(1)
			serve(b, s, "POST", "/api/v1/namespaces/default/pods", "application/json", fmt.Sprintf(benchPod, i, i))
		}
	})
}

func BenchmarkGetPod(b *testing.B) {
	s := benchServer(b)
	serve(b, s, "POST", "/api/v1/namespaces/default/pods", "application/json", fmt.Sprintf(benchPod, 1, 1))
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		serve(b, s, "GET", "/api/v1/namespaces/default/pods/p-1", "", "")
	}
}

func BenchmarkMergePatchPod(b *testing.B) {
	s := benchServer(b)
	serve(b, s, "POST", "/api/v1/namespaces/default/pods", "application/json", fmt.Sprintf(benchPod, 1, 1))
	b.ReportAllocs()
	b.ResetTimer()
	i := 0
	for b.Loop() {
		i++
		serve(b, s, "PATCH", "/api/v1/namespaces/default/pods/p-1", "application/merge-patch+json", fmt.Sprintf(`{"metadata":{"annotations":{"i":"%d"}}}`, i))
	}
}

func BenchmarkListPods(b *testing.B) {
	s := benchServer(b)
	for i := range 5000 {
		serve(b, s, "POST", "/api/v1/namespaces/default/pods", "application/json", fmt.Sprintf(benchPod, i, i))
	}
	for _, accept := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		b.Run(accept, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequest("GET", "/api/v1/pods", nil)
				r.Header.Set("Accept", accept)
				s.Handler().ServeHTTP(discard{httptest.NewRecorder()}, r)
			}
		})
	}
}

// The ConfigMaps that test/compare creates and patches, in protobuf as in its load.
func benchConfigMap(b *testing.B, i int64) string {
	obj := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c-%06d", i), Namespace: "default", Labels: map[string]string{"app": "compare", "n": fmt.Sprint(i % 10)}},
		Data:       map[string]string{"key": fmt.Sprintf("%0512d", i)},
	}
	body, err := wire.EncodeAs(obj, corev1.SchemeGroupVersion.WithKind("ConfigMap"), wire.Format{Media: wire.MediaProtobuf})
	if err != nil {
		b.Fatal(err)
	}
	return string(body)
}

func BenchmarkCreateConfigMap(b *testing.B) {
	s := benchServer(b)
	b.ReportAllocs()
	i := int64(0)
	for b.Loop() {
		i++
		serve(b, s, "POST", "/api/v1/namespaces/default/configmaps", "application/vnd.kubernetes.protobuf", benchConfigMap(b, i))
	}
}

func BenchmarkMergePatchConfigMap(b *testing.B) {
	s := benchServer(b)
	const objects = 1000
	for i := range int64(objects) {
		serve(b, s, "POST", "/api/v1/namespaces/default/configmaps", "application/vnd.kubernetes.protobuf", benchConfigMap(b, i))
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i++
		serve(b, s, "PATCH", fmt.Sprintf("/api/v1/namespaces/default/configmaps/c-%06d", i%objects), "application/merge-patch+json", fmt.Sprintf(`{"metadata":{"labels":{"patched":"p%d"}}}`, i))
	}
}
