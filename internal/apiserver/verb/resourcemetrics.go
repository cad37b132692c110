package verb

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/knarr-project/knarr/internal/apiserver/registry"
	"github.com/knarr-project/knarr/internal/apiserver/usage"
	"github.com/knarr-project/knarr/internal/cache"
)

// resourceMetrics answers a list of metrics.k8s.io: the selected nodes or running pods that could
// be measured.
func (op *Operation) resourceMetrics(ctx context.Context, req *registry.ListRequest) ([]runtime.Object, error) {
	objs, failures, err := op.measureUsage(ctx, req.Opts.LabelSelector, req.Fields)
	for node, err := range failures {
		op.Endpoint.Shared.Log.Debug("the resource usage of a node is unknown", "node", node, "err", err)
	}
	return objs, err
}

// resourceMetricsOf answers for one node or pod.
func (op *Operation) resourceMetricsOf(ctx context.Context) (runtime.Object, error) {
	objs, failures, err := op.measureUsage(ctx, "", fields.OneTermEqualSelector(metav1.ObjectNameField, op.Name))
	if err != nil {
		return nil, err
	}
	for node, err := range failures {
		return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("node %s could not be asked: %v", node, err))
	}
	if len(objs) == 0 {
		return nil, apierrors.NewNotFound(op.Endpoint.Resource, op.Name)
	}
	return objs[0], nil
}

// measureUsage finds the selected nodes or pods and reads the usage from their nodes.
func (op *Operation) measureUsage(ctx context.Context, labelSelector string, selected fields.Selector) (objs []runtime.Object, failures map[string]error, err error) {
	pods := op.Endpoint.Kind.Namespaced
	if pods {
		selected = fields.AndSelectors(selected, fields.OneTermEqualSelector("status.phase", "Running"))
	}
	measured, _ := op.Engine.Kinds.Hub("", op.Endpoint.Resource.Resource)
	list := op.Engine.InternalOperation(measured, op.Namespace, "")
	req, err := list.Endpoint.NewListRequest(metav1.ListOptions{LabelSelector: labelSelector, FieldSelector: selected.String()})
	if err != nil {
		return nil, nil, err
	}
	page, err := list.List(ctx, req)
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
	for _, e := range page.Entries {
		if name := nodeOf(e); name != "" && !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	failures = map[string]error{}
	usages := op.Engine.Meter.Nodes(ctx, names, func(name string, err error) { failures[name] = err })
	now := op.Endpoint.Shared.Now()
	for _, e := range page.Entries {
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
