package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/resource/pods"
)

// clusterDefault is the key of the selector for namespaces without one of their own.
const clusterDefault = "clusterDefaultNodeSelector"

// podNodeSelector adds the node selector of the namespace, or the cluster's default, to its pods.
// In namespaces that the settings name, pods may select only within the configured labels.
type podNodeSelector struct {
	base
	namespaces *client.Lazy[*corev1.Namespace]
	settings   map[string]string // selectors by namespace, and clusterDefault
}

const annotationNodeSelector = "scheduler.alpha.kubernetes.io/node-selector"

func newPodNodeSelector(namespaces *client.Lazy[*corev1.Namespace], settings map[string]string) Plugin {
	return podNodeSelector{base{"PodNodeSelector", []Operation{Create}}, namespaces, settings}
}

// Admit implements Mutator.
func (p podNodeSelector) Admit(ctx context.Context, a *Attributes) error {
	pod, ok := a.pod()
	if !ok {
		return nil
	}
	wanted, err := p.wanted(ctx, a)
	if err != nil {
		return err
	}
	for key, value := range wanted {
		if _, ok := pod.Spec.NodeSelector[key]; ok {
			continue
		}
		if pod.Spec.NodeSelector == nil {
			pod.Spec.NodeSelector = map[string]string{}
		}
		pod.Spec.NodeSelector[key] = value
	}
	return p.Validate(ctx, a)
}

// Validate implements Validator.
func (p podNodeSelector) Validate(ctx context.Context, a *Attributes) error {
	pod, ok := a.pod()
	if !ok {
		return nil
	}
	wanted, err := p.wanted(ctx, a)
	if err != nil {
		return err
	}
	for key, value := range wanted {
		if have, ok := pod.Spec.NodeSelector[key]; ok && have != value {
			return a.forbid(errors.New("pod node label selector conflicts with its namespace node label selector"))
		}
	}
	text := p.settings[a.Namespace]
	if text == "" {
		return nil
	}
	allowed, err := labels.ConvertSelectorToLabelsMap(text)
	if err != nil {
		return internalServerError(err)
	}
	for key, value := range pod.Spec.NodeSelector {
		if may, ok := allowed[key]; !ok || may != value {
			return a.forbid(errors.New("pod node label selector labels conflict with its namespace whitelist"))
		}
	}
	return nil
}

// wanted returns the labels that the nodes of the namespace's pods must have.
func (p podNodeSelector) wanted(ctx context.Context, a *Attributes) (labels.Set, error) {
	namespace, err := p.namespaces.Find(ctx, "", a.Namespace)
	if err != nil {
		return nil, err
	}
	text, ok := namespace.Annotations[annotationNodeSelector]
	if !ok {
		text = p.settings[clusterDefault]
	}
	wanted, err := labels.ConvertSelectorToLabelsMap(text)
	if err != nil {
		return nil, internalServerError(err)
	}
	return wanted, nil
}

// Tolerations are the settings of PodTolerationRestriction, for namespaces without annotations.
type Tolerations struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"`
	Default    []corev1.Toleration `json:"default"`
	Allowed    []corev1.Toleration `json:"whitelist"`
}

// podTolerations adds the namespace's default tolerations to its pods, and refuses tolerations that
// the namespace does not allow.
type podTolerations struct {
	base
	namespaces *client.Lazy[*corev1.Namespace]
	settings   Tolerations
}

const (
	annotationDefaultTolerations = "scheduler.alpha.kubernetes.io/defaultTolerations"
	annotationAllowedTolerations = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
)

func newPodTolerations(namespaces *client.Lazy[*corev1.Namespace], settings Tolerations) Plugin {
	return podTolerations{base{"PodTolerationRestriction", []Operation{Create, Update}}, namespaces, settings}
}

// Admit implements Mutator.
func (p podTolerations) Admit(ctx context.Context, a *Attributes) error {
	pod, ok := a.pod()
	if !ok || a.Operation != Create {
		return nil
	}
	extra, _, err := p.annotated(ctx, a, annotationDefaultTolerations, p.settings.Default)
	if err != nil {
		return err
	}
	if len(extra) > 0 {
		pod.Spec.Tolerations = widest(append(slices.Clone(pod.Spec.Tolerations), extra...))
	}
	if pods.QOSClass(pod) != corev1.PodQOSBestEffort {
		pressure := corev1.Toleration{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
		pod.Spec.Tolerations = widest(append(slices.Clone(pod.Spec.Tolerations), pressure))
	}
	return p.Validate(ctx, a)
}

// Validate implements Validator.
func (p podTolerations) Validate(ctx context.Context, a *Attributes) error {
	pod, ok := a.pod()
	if !ok {
		return nil
	}
	allowed, whose, err := p.annotated(ctx, a, annotationAllowedTolerations, p.settings.Allowed)
	if err != nil || len(allowed) == 0 {
		return err
	}
	for _, t := range pod.Spec.Tolerations {
		if !slices.ContainsFunc(allowed, func(wider corev1.Toleration) bool { return covers(wider, t) }) {
			return internalServerError(fmt.Errorf("pod tolerations (possibly merged with namespace default tolerations) conflict with its %s whitelist", whose))
		}
	}
	return nil
}

// widest drops tolerations that another one covers; of equal ones, the first stays.
func widest(all []corev1.Toleration) []corev1.Toleration {
	var out []corev1.Toleration
	for i, t := range all {
		covered := false
		for j, other := range all {
			if i != j && covers(other, t) && (j < i || !covers(t, other)) {
				covered = true
				break
			}
		}
		if !covered {
			out = append(out, t)
		}
	}
	return out
}

// covers reports whether wider tolerates every taint that t tolerates.
func covers(wider, t corev1.Toleration) bool {
	exists := wider.Operator == corev1.TolerationOpExists
	if wider.Key != t.Key && (wider.Key != "" || !exists) || wider.Effect != "" && wider.Effect != t.Effect {
		return false
	}
	if !exists && (t.Operator == corev1.TolerationOpExists || wider.Value != t.Value) {
		return false
	}
	if wider.Effect != corev1.TaintEffectNoExecute || wider.TolerationSeconds == nil {
		return true
	}
	return t.TolerationSeconds != nil && *t.TolerationSeconds <= *wider.TolerationSeconds
}

// annotated returns the tolerations in a namespace's annotation, or the cluster's if it has none.
func (p podTolerations) annotated(ctx context.Context, a *Attributes, key string, cluster []corev1.Toleration) (out []corev1.Toleration, whose string, err error) {
	namespace, err := p.namespaces.Find(ctx, "", a.Namespace)
	if err != nil {
		return nil, "", err
	}
	text, ok := namespace.Annotations[key]
	if !ok {
		return cluster, "cluster", nil
	}
	if text != "" {
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			return nil, "", internalServerError(err)
		}
	}
	return out, "namespace", nil
}
