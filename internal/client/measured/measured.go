// Package measured counts and times the calls of a client, under upstream's names of the metrics of
// client-go. It also measures a client of an API server in the same process, which client-go's own
// metrics do not see.
//
// A View counts as one GET when it is opened; its events are no requests.
package measured

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
)

// Metrics are rest_client_*. They are safe for concurrent use.
type Metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

// New makes metrics.
func New() *Metrics {
	return &Metrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "rest_client_requests_total", Help: "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.",
		}, []string{"code", "method", "host"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "rest_client_request_duration_seconds", Help: "[ALPHA] Request latency in seconds. Broken down by verb, and host.",
			Buckets: []float64{0.005, 0.025, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60},
		}, []string{"verb", "host"}),
	}
}

// Collectors returns the metrics for a registry.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.seconds}
}

// Client returns the client with measured calls. host names the API server.
func (m *Metrics) Client(c client.Interface, host string) client.Interface {
	return calls{c, m, host}
}

type calls struct {
	client.Interface
	m    *Metrics
	host string
}

func request[T any](c calls, method string, success int, fn func() (T, error)) (T, error) {
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
	c.m.requests.WithLabelValues(code, method, c.host).Inc()
	c.m.seconds.WithLabelValues(method, c.host).Observe(time.Since(began).Seconds())
	return out, err
}

// Get implements client.Interface.
func (c calls) Get(ctx context.Context, res schema.GroupVersionResource, namespace, name string, opts metav1.GetOptions, sub ...string) (runtime.Object, error) {
	return request(c, "GET", http.StatusOK, func() (runtime.Object, error) { return c.Interface.Get(ctx, res, namespace, name, opts, sub...) })
}

// List implements client.Interface.
func (c calls) List(ctx context.Context, res schema.GroupVersionResource, namespace string, opts metav1.ListOptions) (runtime.Object, error) {
	return request(c, "GET", http.StatusOK, func() (runtime.Object, error) { return c.Interface.List(ctx, res, namespace, opts) })
}

// Create implements client.Interface.
func (c calls) Create(ctx context.Context, res schema.GroupVersionResource, namespace string, obj runtime.Object, opts metav1.CreateOptions, sub ...string) (runtime.Object, error) {
	return request(c, "POST", http.StatusCreated, func() (runtime.Object, error) { return c.Interface.Create(ctx, res, namespace, obj, opts, sub...) })
}

// CreateSub implements client.Interface.
func (c calls) CreateSub(ctx context.Context, res schema.GroupVersionResource, namespace, name, sub string, obj runtime.Object, opts metav1.CreateOptions) (runtime.Object, error) {
	return request(c, "POST", http.StatusCreated, func() (runtime.Object, error) {
		return c.Interface.CreateSub(ctx, res, namespace, name, sub, obj, opts)
	})
}

// Bind implements client.Binder.
func (c calls) Bind(ctx context.Context, binding *corev1.Binding, event *corev1.Event) (recorded bool, err error) {
	return request(c, "POST", http.StatusCreated, func() (bool, error) { return client.Bind(ctx, c.Interface, binding, event) })
}

// Update implements client.Interface.
func (c calls) Update(ctx context.Context, res schema.GroupVersionResource, obj runtime.Object, opts metav1.UpdateOptions, sub ...string) (runtime.Object, error) {
	return request(c, "PUT", http.StatusOK, func() (runtime.Object, error) { return c.Interface.Update(ctx, res, obj, opts, sub...) })
}

// Patch implements client.Interface.
func (c calls) Patch(ctx context.Context, res schema.GroupVersionResource, namespace, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions, sub ...string) (runtime.Object, error) {
	return request(c, "PATCH", http.StatusOK, func() (runtime.Object, error) {
		return c.Interface.Patch(ctx, res, namespace, name, pt, data, opts, sub...)
	})
}

// Delete implements client.Interface.
func (c calls) Delete(ctx context.Context, res schema.GroupVersionResource, namespace, name string, opts metav1.DeleteOptions) error {
	_, err := request(c, "DELETE", http.StatusOK, func() (struct{}, error) {
		return struct{}{}, c.Interface.Delete(ctx, res, namespace, name, opts)
	})
	return err
}

// DeleteCollection implements client.Interface.
func (c calls) DeleteCollection(ctx context.Context, res schema.GroupVersionResource, namespace string, opts metav1.DeleteOptions, list metav1.ListOptions) error {
	_, err := request(c, "DELETE", http.StatusOK, func() (struct{}, error) {
		return struct{}{}, c.Interface.DeleteCollection(ctx, res, namespace, opts, list)
	})
	return err
}

// View implements client.Interface.
func (c calls) View(ctx context.Context, res schema.GroupVersionResource, scope client.Scope) (client.View, error) {
	return request(c, "GET", http.StatusOK, func() (client.View, error) { return c.Interface.View(ctx, res, scope) })
}
