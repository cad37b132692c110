package apiserver

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/knarr-project/knarr/internal/apiserver/usage"
	"github.com/knarr-project/knarr/internal/cache"
)

// newMeter measures nodes and pods by asking kubelets.
func newMeter(n *nodes, clock func() time.Time) *usage.Meter {
	return usage.New(usage.Config{Read: n.readUsage, Now: clock, Sleep: func(ctx context.Context, d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}})
}

// largestReading is more than any node's kubelet reports, in bytes.
const largestReading = 64 << 20

// readUsage reads the resource usage of a node from its kubelet.
func (n *nodes) readUsage(ctx context.Context, node string) (*usage.Reading, error) {
	location, err := n.kubeletAt(ctx, node)
	if err != nil {
		return nil, err
	}
	location.Path = "/metrics/resource"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, location.String(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := n.transports().kubelet.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the kubelet of node %s answers %s", node, resp.Status)
	}
	return usage.Parse(io.LimitReader(resp.Body, largestReading))
}

// resourceMetrics answers a list of metrics.k8s.io: the selected nodes or running pods that could
// be measured.
func (op *operation) resourceMetrics(ctx context.Context, req *listRequest) ([]runtime.Object, error) {
	objs, failures, err := op.measure(ctx, req.opts.LabelSelector, req.fields)
	for node, err := range failures {
		op.endpoint.shared.log.Debug("a node's use of resources is not known", "node", node, "err", err)
	}
	return objs, err
}

// resourceMetricsOf answers for one node or pod.
func (op *operation) resourceMetricsOf(ctx context.Context) (runtime.Object, error) {
	objs, failures, err := op.measure(ctx, "", fields.OneTermEqualSelector(metav1.ObjectNameField, op.name))
	if err != nil {
		return nil, err
	}
	for node, err := range failures {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("node %s could not be asked: %v", node, err))
	}
	if len(objs) == 0 {
		return nil, apierrors.NewNotFound(op.endpoint.resource, op.name)
	}
	return objs[0], nil
}

// measure finds the selected nodes or pods and reads the usage from their nodes.
func (op *operation) measure(ctx context.Context, labelSelector string, selected fields.Selector) (objs []runtime.Object, failures map[string]error, err error) {
	pods := op.endpoint.kind.Namespaced
	if pods {
		selected = fields.AndSelectors(selected, fields.OneTermEqualSelector("status.phase", "Running"))
	}
	measured, _ := op.engine.kinds.hub("", op.endpoint.resource.Resource)
	list := op.engine.internal(measured, op.namespace, "")
	req, err := list.endpoint.newListRequest(metav1.ListOptions{LabelSelector: labelSelector, FieldSelector: selected.String()})
	if err != nil {
		return nil, nil, err
	}
	page, err := list.list(ctx, req)
	if err != nil {
		return nil, nil, err
	}
	nodeOf := func(e *cache.Entry) string {
		if pods {
			return e.Fields.Get("spec.nodeName")
		}
		return e.Name
	}
	var names []string
	seen := map[string]bool{}
	for _, e := range page.entries {
		if name := nodeOf(e); name != "" && !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	failures = map[string]error{}
	usages := op.engine.meter.Nodes(ctx, names, func(name string, err error) { failures[name] = err })
	now := op.endpoint.shared.now()
	for _, e := range page.entries {
		u := usages[nodeOf(e)]
		if u == nil {
			continue
		}
		meta := metav1.ObjectMeta{Name: e.Name, Namespace: e.Namespace, Labels: e.Labels.Map(), CreationTimestamp: now}
		if !pods && u.Node != nil {
			objs = append(objs, nodeMetrics(meta, u))
		} else if containers := u.Pods[types.NamespacedName{Namespace: e.Namespace, Name: e.Name}]; containers != nil {
			objs = append(objs, podMetrics(meta, u, containers))
		}
	}
	return objs, failures, nil
}

func nodeMetrics(meta metav1.ObjectMeta, u *usage.Usage) *metricsv1beta1.NodeMetrics {
	return &metricsv1beta1.NodeMetrics{ObjectMeta: meta, Timestamp: metav1.NewTime(u.At), Window: metav1.Duration{Duration: u.Window}, Usage: u.Node}
}

func podMetrics(meta metav1.ObjectMeta, u *usage.Usage, containers []usage.Container) *metricsv1beta1.PodMetrics {
	m := &metricsv1beta1.PodMetrics{ObjectMeta: meta, Timestamp: metav1.NewTime(u.At), Window: metav1.Duration{Duration: u.Window}}
	for _, c := range containers {
		m.Containers = append(m.Containers, metricsv1beta1.ContainerMetrics{Name: c.Name, Usage: c.Usage})
	}
	return m
}
