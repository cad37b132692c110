package admission

import (
	"context"
	"fmt"
	"slices"

	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/knarr-project/knarr/internal/client"
)

// groupProtection adds the finalizer that keeps a PodGroup while its pods run.
type groupProtection struct{ base }

func newGroupProtection() Plugin {
	return groupProtection{base{"PodGroupProtection", []Operation{Create}}}
}

// Admit implements Mutator.
func (groupProtection) Admit(_ context.Context, a *Attributes) error {
	if a.is(schedulingv1alpha2.GroupName, "podgroups", "") {
		addFinalizer(a.Object, "scheduling.k8s.io/podgroup-protection")
	}
	return nil
}

// workloadExists refuses a new PodGroup whose template does not exist.
type workloadExists struct {
	base
	workloads *client.Lazy[*schedulingv1alpha2.Workload]
}

func newWorkloadExists(workloads *client.Lazy[*schedulingv1alpha2.Workload]) Plugin {
	return workloadExists{base{"PodGroupWorkloadExists", []Operation{Create}}, workloads}
}

// Validate implements Validator.
func (p workloadExists) Validate(ctx context.Context, a *Attributes) error {
	group, ok := a.Object.(*schedulingv1alpha2.PodGroup)
	if !ok || a.Subresource != "" || group.Spec.PodGroupTemplateRef == nil || group.Spec.PodGroupTemplateRef.Workload == nil {
		return nil
	}
	ref := group.Spec.PodGroupTemplateRef.Workload
	workload, err := p.workloads.Find(ctx, a.Namespace, ref.WorkloadName)
	switch {
	case apierrors.IsNotFound(err):
		return a.forbid(fmt.Errorf("PodGroup rejected: Workload %q not found", ref.WorkloadName))
	case err != nil:
		return apierrors.NewInternalError(err)
	case workload.DeletionTimestamp != nil:
		return a.forbid(fmt.Errorf("PodGroup rejected: Workload %q is being deleted", ref.WorkloadName))
	}
	named := func(t schedulingv1alpha2.PodGroupTemplate) bool { return t.Name == ref.PodGroupTemplateName }
	if slices.ContainsFunc(workload.Spec.PodGroupTemplates, named) {
		return nil
	}
	return a.forbid(fmt.Errorf("PodGroup rejected: PodGroupTemplate %q not found in Workload %q", ref.PodGroupTemplateName, ref.WorkloadName))
}
