package framework

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

func milli(v int64) *resource.Quantity { return resource.NewMilliQuantity(v, resource.DecimalSI) }
func bytes(v int64) *resource.Quantity { return resource.NewQuantity(v, resource.BinarySI) }

func (p *PodInfo) hasAffinity() bool {
	return len(p.RequiredAffinity)+len(p.RequiredAntiAffinity)+len(p.PreferredAffinity)+len(p.PreferredAntiAffinity) > 0
}

func (p *PodInfo) compileAffinity() {
	a := p.Pod.Spec.Affinity
	if a == nil {
		return
	}
	if pa := a.PodAffinity; pa != nil {
		p.RequiredAffinity = p.compile(pa.RequiredDuringSchedulingIgnoredDuringExecution)
		p.PreferredAffinity = p.compileWeighted(pa.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if pa := a.PodAntiAffinity; pa != nil {
		p.RequiredAntiAffinity = p.compile(pa.RequiredDuringSchedulingIgnoredDuringExecution)
		p.PreferredAntiAffinity = p.compileWeighted(pa.PreferredDuringSchedulingIgnoredDuringExecution)
	}
}

func (p *PodInfo) compile(terms []corev1.PodAffinityTerm) []Term {
	out := make([]Term, 0, len(terms))
	for i := range terms {
		t, err := compileTerm(p.Pod, &terms[i])
		if err != nil {
			p.Invalid = err
			return nil
		}
		out = append(out, t)
	}
	return out
}

func (p *PodInfo) compileWeighted(terms []corev1.WeightedPodAffinityTerm) []Term {
	out := make([]Term, 0, len(terms))
	for i := range terms {
		t, err := compileTerm(p.Pod, &terms[i].PodAffinityTerm)
		if err != nil {
			p.Invalid = err
			return nil
		}
		t.Weight = int64(terms[i].Weight)
		out = append(out, t)
	}
	return out
}

// compileTerm makes a term's selectors. matchLabelKeys add requirements with the pod's own label
// values (KEP-3633).
func compileTerm(pod *corev1.Pod, term *corev1.PodAffinityTerm) (Term, error) {
	selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
	if err != nil {
		return Term{}, fmt.Errorf("labelSelector of a pod affinity term: %w", err)
	}
	if selector, err = withLabelKeys(selector, pod.Labels, term.MatchLabelKeys, selection.In); err != nil {
		return Term{}, err
	}
	if selector, err = withLabelKeys(selector, pod.Labels, term.MismatchLabelKeys, selection.NotIn); err != nil {
		return Term{}, err
	}
	t := Term{Selector: selector, TopologyKey: term.TopologyKey, Namespaces: map[string]bool{}}
	for _, ns := range term.Namespaces {
		t.Namespaces[ns] = true
	}
	if term.NamespaceSelector != nil {
		if t.NamespaceSelector, err = metav1.LabelSelectorAsSelector(term.NamespaceSelector); err != nil {
			return Term{}, fmt.Errorf("namespaceSelector of a pod affinity term: %w", err)
		}
	} else if len(term.Namespaces) == 0 {
		t.Namespaces[pod.Namespace] = true
	}
	t.ID = t.id()
	return t, nil
}

// id names the pods and the topology key of the term: terms with the same id select the same.
func (t *Term) id() string {
	id := strings.Join(slices.Sorted(maps.Keys(t.Namespaces)), ",")
	if t.NamespaceSelector != nil {
		id += "|" + t.NamespaceSelector.String()
	}
	id += "|" + t.TopologyKey + "|"
	if text := t.Selector.String(); text != "" || t.Selector.Empty() {
		return id + text
	}
	return id + "!" // no pod; the text of a selector for all pods is empty too
}

func withLabelKeys(selector labels.Selector, podLabels map[string]string, keys []string, op selection.Operator) (labels.Selector, error) {
	for _, key := range keys {
		value, ok := podLabels[key]
		if !ok {
			continue
		}
		r, err := labels.NewRequirement(key, op, []string{value})
		if err != nil {
			return nil, fmt.Errorf("label key of a pod affinity term: %w", err)
		}
		selector = selector.Add(*r)
	}
	return selector, nil
}
