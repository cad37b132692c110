package measure

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
)

func (m *Metrics) api() {
	m.apiRequests = m.counter("rest_client_requests_total", "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.", "code", "method", "host")
	m.apiSeconds = m.histogram("rest_client_request_duration_seconds", "[ALPHA] Request latency in seconds. Broken down by verb, and host.",
		[]float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60}, "verb", "host")
}

// Client measures the requests of the node agent to the API server, also to one in the same
// process. host names that server.
func (m *Metrics) Client(c client.Interface, host string) client.Interface {
	return apiCalls{c, m, host}
}

type apiCalls struct {
	client.Interface
	m    *Metrics
	host string
}

func request[T any](c apiCalls, method string, success int, fn func() (T, error)) (T, error) {
	began := time.Now()
	out, err := fn()
	code := strconv.Itoa(success)
	var status apierrors.APIStatus
	switch {
	case err == nil:
	case errors.As(err, &status) && status.Status().Code > 0:
		code = strconv.Itoa(int(status.Status().Code))
	default:
		code = "<error>"
	}
	c.m.apiRequests.WithLabelValues(code, method, c.host).Inc()
	c.m.apiSeconds.WithLabelValues(method, c.host).Observe(time.Since(began).Seconds())
	return out, err
}

// Get implements client.Interface.
func (c apiCalls) Get(ctx context.Context, res schema.GroupVersionResource, namespace, name string, opts metav1.GetOptions, sub ...string) (runtime.Object, error) {
	return request(c, "GET", http.StatusOK, func() (runtime.Object, error) { return c.Interface.Get(ctx, res, namespace, name, opts, sub...) })
}

// List implements client.Interface.
func (c apiCalls) List(ctx context.Context, res schema.GroupVersionResource, namespace string, opts metav1.ListOptions) (runtime.Object, error) {
	return request(c, "GET", http.StatusOK, func() (runtime.Object, error) { return c.Interface.List(ctx, res, namespace, opts) })
}

// Create implements client.Interface.
func (c apiCalls) Create(ctx context.Context, res schema.GroupVersionResource, namespace string, obj runtime.Object, opts metav1.CreateOptions, sub ...string) (runtime.Object, error) {
	return request(c, "POST", http.StatusCreated, func() (runtime.Object, error) { return c.Interface.Create(ctx, res, namespace, obj, opts, sub...) })
}

// CreateSub implements client.Interface.
func (c apiCalls) CreateSub(ctx context.Context, res schema.GroupVersionResource, namespace, name, sub string, obj runtime.Object, opts metav1.CreateOptions) (runtime.Object, error) {
	return request(c, "POST", http.StatusCreated, func() (runtime.Object, error) {
		return c.Interface.CreateSub(ctx, res, namespace, name, sub, obj, opts)
	})
}

// Update implements client.Interface.
func (c apiCalls) Update(ctx context.Context, res schema.GroupVersionResource, obj runtime.Object, opts metav1.UpdateOptions, sub ...string) (runtime.Object, error) {
	return request(c, "PUT", http.StatusOK, func() (runtime.Object, error) { return c.Interface.Update(ctx, res, obj, opts, sub...) })
}

// Patch implements client.Interface.
func (c apiCalls) Patch(ctx context.Context, res schema.GroupVersionResource, namespace, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, sub ...string) (runtime.Object, error) {
	return request(c, "PATCH", http.StatusOK, func() (runtime.Object, error) {
		return c.Interface.Patch(ctx, res, namespace, name, pt, data, opts, sub...)
	})
}

// Delete implements client.Interface.
func (c apiCalls) Delete(ctx context.Context, res schema.GroupVersionResource, namespace, name string, opts metav1.DeleteOptions) error {
	_, err := request(c, "DELETE", http.StatusOK, func() (struct{}, error) {
		return struct{}{}, c.Interface.Delete(ctx, res, namespace, name, opts)
	})
	return err
}
