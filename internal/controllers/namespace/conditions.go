package namespace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/client"
)

// report writes the findings into the namespace's conditions, with upstream's texts.
func (c *namespaced) report(ctx context.Context, ns *corev1.Namespace, found *content) (*corev1.Namespace, error) {
	changed := ns.DeepCopy()
	changed.Status.Phase = corev1.NamespaceTerminating
	for _, want := range found.conditions() {
		want.LastTransitionTime = metav1.NewTime(c.now())
		i := slices.IndexFunc(changed.Status.Conditions, func(have corev1.NamespaceCondition) bool { return have.Type == want.Type })
		switch {
		case i < 0:
			changed.Status.Conditions = append(changed.Status.Conditions, want)
		case changed.Status.Conditions[i].Status != want.Status || changed.Status.Conditions[i].Message != want.Message || changed.Status.Conditions[i].Reason != want.Reason:
			if changed.Status.Conditions[i].Status == want.Status {
				want.LastTransitionTime = changed.Status.Conditions[i].LastTransitionTime
			}
			changed.Status.Conditions[i] = want
		}
	}
	if equality.Semantic.DeepEqual(ns.Status, changed.Status) {
		return ns, nil
	}
	return client.UpdateStatus(ctx, c.client, changed)
}

// conditions returns all five conditions in upstream's order.
func (f *content) conditions() []corev1.NamespaceCondition {
	condition := func(t corev1.NamespaceConditionType, bad bool, badReason, badMessage, goodReason, goodMessage string) corev1.NamespaceCondition {
		if bad {
			return corev1.NamespaceCondition{Type: t, Status: corev1.ConditionTrue, Reason: badReason, Message: badMessage}
		}
		return corev1.NamespaceCondition{Type: t, Status: corev1.ConditionFalse, Reason: goodReason, Message: goodMessage}
	}
	discovery := ""
	if f.discovery != nil {
		discovery = fmt.Sprintf("Discovery failed for some groups, %d failing: %v", 1, f.discovery)
	}
	var kinds, finalizers []string
	for gvr, n := range f.remaining {
		kinds = append(kinds, fmt.Sprintf("%s.%s has %d resource instances", gvr.Resource, gvr.Group, n))
	}
	for name, n := range f.finalizers {
		finalizers = append(finalizers, fmt.Sprintf("%s in %d resource instances", name, n))
	}
	sort.Strings(kinds)
	sort.Strings(finalizers)
	failed := f.deletion
	if f.remaining[pods] > 0 && len(failed) == 0 {
		// While pods remain, no other kind has been tried. Upstream reports that as a failure.
		failed = []error{fmt.Errorf("unexpected items still remain in namespace for gvr: %s", pods)}
	}
	return []corev1.NamespaceCondition{
		condition(corev1.NamespaceDeletionDiscoveryFailure, f.discovery != nil, "DiscoveryFailed", discovery,
			"ResourcesDiscovered", "All resources successfully discovered"),
		condition(corev1.NamespaceDeletionGVParsingFailure, len(f.parsing) > 0, "GroupVersionParsingFailed",
			fmt.Sprintf("%d unparsable GroupVersions: %v", len(f.parsing), errors.Join(f.parsing...)),
			"ParsedGroupVersions", "All legacy kube types successfully parsed"),
		condition(corev1.NamespaceDeletionContentFailure, len(failed) > 0, "ContentDeletionFailed",
			fmt.Sprintf("Failed to delete all resource types, %d remaining: %v", len(failed), errors.Join(failed...)),
			"ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
		condition(corev1.NamespaceContentRemaining, len(kinds) > 0, "SomeResourcesRemain",
			"Some resources are remaining: "+strings.Join(kinds, ", "),
			"ContentRemoved", "All content successfully removed"),
		condition(corev1.NamespaceFinalizersRemaining, len(finalizers) > 0, "SomeFinalizersRemain",
			"Some content in the namespace has finalizers remaining: "+strings.Join(finalizers, ", "),
			"ContentHasNoFinalizers", "All content-preserving finalizers finished"),
	}
}
