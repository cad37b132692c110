package admission

import (
	"strings"
	"testing"
	"time"

	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestANewPodGroupIsProtectedAndNeedsItsTemplate(t *testing.T) {
	workload := func(name string) *schedulingv1alpha2.Workload {
		return &schedulingv1alpha2.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: schedulingv1alpha2.WorkloadSpec{
			PodGroupTemplates: []schedulingv1alpha2.PodGroupTemplate{{Name: "t"}},
		}}
	}
	leaving := workload("leaving")
	now := metav1.NewTime(time.Unix(1, 0))
	leaving.DeletionTimestamp, leaving.Finalizers = &now, []string{"a/b"}
	for name, c := range map[string]struct{ workload, template, want string }{
		"without a reference":      {},
		"with a template":          {"w", "t", ""},
		"with a missing template":  {"w", "u", `PodGroup rejected: PodGroupTemplate "u" not found in Workload "w"`},
		"with a missing workload":  {"v", "t", `PodGroup rejected: Workload "v" not found`},
		"of a workload being gone": {"leaving", "t", `PodGroup rejected: Workload "leaving" is being deleted`},
	} {
		g := &schedulingv1alpha2.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "g"}}
		if c.workload != "" {
			g.Spec.PodGroupTemplateRef = &schedulingv1alpha2.PodGroupTemplateReference{Workload: &schedulingv1alpha2.WorkloadPodGroupTemplateReference{WorkloadName: c.workload, PodGroupTemplateName: c.template}}
		}
		err := run(t, Attributes{Object: g}, workload("w"), leaving)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
		if len(g.Finalizers) != 1 || g.Finalizers[0] != "scheduling.k8s.io/podgroup-protection" {
			t.Errorf("%s: finalizers %v", name, g.Finalizers)
		}
	}
}
