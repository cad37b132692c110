package admission

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	resourcehelper "k8s.io/component-helpers/resource"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/resource/pods"
)

const limitRangerAnnotation = "kubernetes.io/limit-ranger"

// limitRanger sets the default requests and limits of a namespace's LimitRanges, and checks pods
// and claims against their bounds.
type limitRanger struct {
	base
	ranges *client.Lazy[*corev1.LimitRange]
}

func newLimitRanger(ranges *client.Lazy[*corev1.LimitRange]) Plugin {
	return limitRanger{base{"LimitRanger", []Operation{Create, Update}}, ranges}
}

// Admit implements Mutator.
func (p limitRanger) Admit(_ context.Context, a *Attributes) error {
	pod, ok := a.pod()
	if !ok || a.Operation != Create {
		return nil
	}
	limits, err := p.of(a.Namespace)
	if err != nil {
		return err
	}
	for _, limit := range limits {
		applyDefaults(limit, pod)
	}
	pods.DefaultPodLevelRequests(pod) // the defaults may raise the containers' requests
	return nil
}

// Validate implements Validator.
func (p limitRanger) Validate(_ context.Context, a *Attributes) error {
	var check func(*corev1.LimitRange) []error
	switch obj := a.Object.(type) {
	case *corev1.Pod:
		// Only create and resize set the resources of a pod.
		if a.is("", "pods", "") && a.Operation == Create || a.is("", "pods", "resize") {
			check = func(l *corev1.LimitRange) []error { return limitPod(l, obj) }
		}
	case *corev1.PersistentVolumeClaim:
		if a.is("", "persistentvolumeclaims", "") {
			check = func(l *corev1.LimitRange) []error { return limitClaim(l, obj) }
		}
	}
	if check == nil {
		return nil
	}
	limits, err := p.of(a.Namespace)
	if err != nil {
		return err
	}
	for _, limit := range limits {
		if errs := check(limit); len(errs) > 0 {
			return a.forbid(utilerrors.NewAggregate(errs))
		}
	}
	return nil
}

func (p limitRanger) of(namespace string) ([]*corev1.LimitRange, error) {
	view, err := p.ranges.View()
	if err != nil {
		return nil, err
	}
	return view.List(namespace, nil), nil
}

// applyDefaults sets missing requests and limits of containers, and records them in an annotation.
func applyDefaults(limit *corev1.LimitRange, pod *corev1.Pod) {
	requests, limits := corev1.ResourceList{}, corev1.ResourceList{}
	for _, item := range limit.Spec.Limits {
		if item.Type == corev1.LimitTypeContainer {
			maps.Copy(requests, item.DefaultRequest)
			maps.Copy(limits, item.Default)
		}
	}
	var said []string
	for i := range pod.Spec.Containers {
		said = append(said, defaultContainer("container", &pod.Spec.Containers[i], requests, limits)...)
	}
	for i := range pod.Spec.InitContainers {
		said = append(said, defaultContainer("init container", &pod.Spec.InitContainers[i], requests, limits)...)
	}
	if len(said) > 0 {
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		pod.Annotations[limitRangerAnnotation] = "LimitRanger plugin set: " + strings.Join(said, "; ")
	}
}

func defaultContainer(kind string, c *corev1.Container, requests, limits corev1.ResourceList) []string {
	set := func(list *corev1.ResourceList, defaults corev1.ResourceList, word string) []string {
		var names []string
		for name, value := range defaults {
			if _, ok := (*list)[name]; ok {
				continue
			}
			if *list == nil {
				*list = corev1.ResourceList{}
			}
			(*list)[name] = value.DeepCopy()
			names = append(names, string(name))
		}
		if len(names) == 0 {
			return nil
		}
		slices.Sort(names)
		return []string{fmt.Sprintf("%s %s for %s %s", strings.Join(names, ", "), word, kind, c.Name)}
	}
	return append(set(&c.Resources.Requests, requests, "request"), set(&c.Resources.Limits, limits, "limit")...)
}

func limitPod(l *corev1.LimitRange, pod *corev1.Pod) []error {
	var errs []error
	for i := range l.Spec.Limits {
		item := &l.Spec.Limits[i]
		switch item.Type {
		case corev1.LimitTypeContainer:
			for _, c := range slices.Concat(pod.Spec.Containers, pod.Spec.InitContainers) {
				errs = append(errs, bound(item, c.Resources.Requests, c.Resources.Limits)...)
			}
		case corev1.LimitTypePod:
			options := resourcehelper.PodResourcesOptions{ExcludeOverhead: true}
			errs = append(errs, bound(item, resourcehelper.PodRequests(pod, options), resourcehelper.PodLimits(pod, options))...)
		}
	}
	return errs
}

func limitClaim(l *corev1.LimitRange, claim *corev1.PersistentVolumeClaim) []error {
	var errs []error
	for i := range l.Spec.Limits {
		if item := &l.Spec.Limits[i]; item.Type == corev1.LimitTypePersistentVolumeClaim {
			// A claim has no limits; its requests are checked.
			for _, name := range names(item.Min) {
				if err := minimum(item.Type, name, item.Min[name], claim.Spec.Resources.Requests, nil); err != nil {
					errs = append(errs, err)
				}
			}
			for _, name := range names(item.Max) {
				if err := maximumRequest(item.Type, name, item.Max[name], claim.Spec.Resources.Requests); err != nil {
					errs = append(errs, err)
				}
			}
		}
	}
	return errs
}

// bound checks requests and limits against one item of a LimitRange.
func bound(item *corev1.LimitRangeItem, requests, limits corev1.ResourceList) []error {
	var errs []error
	add := func(err error) {
		if err != nil {
			errs = append(errs, err)
		}
	}
	for _, name := range names(item.Min) {
		add(minimum(item.Type, name, item.Min[name], requests, limits))
	}
	for _, name := range names(item.Max) {
		add(maximum(item.Type, name, item.Max[name], requests, limits))
	}
	for _, name := range names(item.MaxLimitRequestRatio) {
		add(ratio(item.Type, name, item.MaxLimitRequestRatio[name], requests, limits))
	}
	return errs
}

func names(list corev1.ResourceList) []corev1.ResourceName { return slices.Sorted(maps.Keys(list)) }

func minimum(kind corev1.LimitType, name corev1.ResourceName, least resource.Quantity, requests, limits corev1.ResourceList) error {
	request, hasRequest := requests[name]
	limit, hasLimit := limits[name]
	switch {
	case !hasRequest:
		return fmt.Errorf("minimum %s usage per %s is %s.  No request is specified", name, kind, least.String())
	case request.Cmp(least) < 0:
		return fmt.Errorf("minimum %s usage per %s is %s, but request is %s", name, kind, least.String(), request.String())
	case hasLimit && limit.Cmp(least) < 0:
		return fmt.Errorf("minimum %s usage per %s is %s, but limit is %s", name, kind, least.String(), limit.String())
	}
	return nil
}

func maximum(kind corev1.LimitType, name corev1.ResourceName, most resource.Quantity, requests, limits corev1.ResourceList) error {
	request, hasRequest := requests[name]
	limit, hasLimit := limits[name]
	switch {
	case !hasLimit:
		return fmt.Errorf("maximum %s usage per %s is %s.  No limit is specified", name, kind, most.String())
	case limit.Cmp(most) > 0:
		return fmt.Errorf("maximum %s usage per %s is %s, but limit is %s", name, kind, most.String(), limit.String())
	case hasRequest && request.Cmp(most) > 0:
		return fmt.Errorf("maximum %s usage per %s is %s, but request is %s", name, kind, most.String(), request.String())
	}
	return nil
}

func maximumRequest(kind corev1.LimitType, name corev1.ResourceName, most resource.Quantity, requests corev1.ResourceList) error {
	request, ok := requests[name]
	switch {
	case !ok:
		return fmt.Errorf("maximum %s usage per %s is %s.  No request is specified", name, kind, most.String())
	case request.Cmp(most) > 0:
		return fmt.Errorf("maximum %s usage per %s is %s, but request is %s", name, kind, most.String(), request.String())
	}
	return nil
}

func ratio(kind corev1.LimitType, name corev1.ResourceName, most resource.Quantity, requests, limits corev1.ResourceList) error {
	request, hasRequest := requests[name]
	limit, hasLimit := limits[name]
	switch {
	case !hasRequest || request.IsZero():
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but no request is specified or request is 0", name, kind, most.String())
	case !hasLimit || limit.IsZero():
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but no limit is specified or limit is 0", name, kind, most.String())
	}
	observed := limit.AsApproximateFloat64() / request.AsApproximateFloat64()
	if observed > most.AsApproximateFloat64() {
		return fmt.Errorf("%s max limit to request ratio per %s is %s, but provided ratio is %f", name, kind, most.String(), observed)
	}
	return nil
}
