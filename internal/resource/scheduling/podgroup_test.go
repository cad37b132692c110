package scheduling_test

import (
	"testing"

	schedulingv1alpha2 "k8s.io/api/scheduling/v1alpha2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	rules "github.com/knarr-project/knarr/internal/resource"
	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func group(spec string) string {
	return "apiVersion: scheduling.k8s.io/v1alpha2\nkind: PodGroup\nspec: " + spec + "\n"
}

func workload(spec string) string {
	return "apiVersion: scheduling.k8s.io/v1alpha2\nkind: Workload\nspec: " + spec + "\n"
}

func TestErrorsOfNewGroupsComeInOrder(t *testing.T) {
	const oneOf = "`basic`, `gang`"
	cases := []struct {
		name, manifest string
		want           []string
	}{
		{"a gang", group("{schedulingPolicy: {gang: {minCount: 2}}}"), nil},
		{"a loose group", group("{schedulingPolicy: {basic: {}}, podGroupTemplateRef: {workload: {workloadName: w, podGroupTemplateName: t}}}"), nil},
		{"no policy", group("{}"), []string{`spec.schedulingPolicy: Invalid value: "": must specify one of: ` + oneOf}},
		{"two policies", group("{schedulingPolicy: {basic: {}, gang: {minCount: 1}}}"), []string{`spec.schedulingPolicy: Invalid value: "{basic, gang}": must specify exactly one of: ` + oneOf}},
		{"an empty gang", group("{schedulingPolicy: {gang: {}}}"), []string{"spec.schedulingPolicy.gang.minCount: Required value"}},
		{"a negative gang", group("{schedulingPolicy: {gang: {minCount: -1}}}"), []string{"spec.schedulingPolicy.gang.minCount: Invalid value: -1: must be greater than or equal to 1"}},
		{"an empty reference", group("{schedulingPolicy: {basic: {}}, podGroupTemplateRef: {}}"), []string{"spec.podGroupTemplateRef: Invalid value: \"\": must specify one of: `workload`"}},
		{"a reference without names", group("{schedulingPolicy: {basic: {}}, podGroupTemplateRef: {workload: {}}}"), []string{
			"spec.podGroupTemplateRef.workload.workloadName: Required value", "spec.podGroupTemplateRef.workload.podGroupTemplateName: Required value",
		}},
		{"a workload", workload("{controllerRef: {apiGroup: batch, kind: Job, name: j}, podGroupTemplates: [{name: t, schedulingPolicy: {gang: {minCount: 5}}}]}"), nil},
		{"a workload without templates", workload("{}"), []string{"spec.podGroupTemplates: Required value"}},
		{"a workload of nine templates", workload("{podGroupTemplates: [{}, {}, {}, {}, {}, {}, {}, {}, {}]}"), []string{"spec.podGroupTemplates: Too many: 9: must have at most 8 items"}},
		{"a template without a name", workload("{podGroupTemplates: [{schedulingPolicy: {basic: {}}}]}"), []string{"spec.podGroupTemplates[0].name: Required value"}},
		{"a controller without kind", workload("{controllerRef: {name: a/b}, podGroupTemplates: [{name: t, schedulingPolicy: {basic: {}}}]}"), []string{
			"spec.controllerRef.kind: Required value", `spec.controllerRef.name: Invalid value: "a/b": may not contain '/'`,
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			obj, s := resourcetest.Read(t, rules.For, c.manifest)
			resourcetest.ExpectInOrder(t, resourcetest.Create(s, obj), c.want)
		})
	}
}

func TestSpecsOfGroupsAreImmutable(t *testing.T) {
	cases := []struct {
		name, old, obj string
		want           []string
	}{
		{"a larger gang", group("{schedulingPolicy: {gang: {minCount: 1}}}"), group("{schedulingPolicy: {gang: {minCount: 2}}}"), []string{"spec.schedulingPolicy: Invalid value: null: field is immutable"}},
		{"another template", workload("{podGroupTemplates: [{name: t, schedulingPolicy: {basic: {}}}]}"), workload("{podGroupTemplates: [{name: u, schedulingPolicy: {basic: {}}}]}"),
			[]string{"spec.podGroupTemplates: Invalid value: null: field is immutable"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			old, s := resourcetest.Read(t, rules.For, c.old)
			obj, _ := resourcetest.Read(t, rules.For, c.obj)
			resourcetest.ExpectInOrder(t, resourcetest.Update(s, obj, old), c.want)
		})
	}
}

func TestAFieldOfAFeatureThatIsOffDoesNotChange(t *testing.T) {
	old, s := resourcetest.Read(t, rules.For, group("{schedulingPolicy: {basic: {}}}"))
	obj, _ := resourcetest.Read(t, rules.For, group("{schedulingPolicy: {basic: {}}, disruptionMode: PodGroup}"))
	s.PrepareUpdate(obj, old)
	resourcetest.Expect(t, s.ValidateUpdate(obj, old), "spec.disruptionMode: Forbidden")
}

func TestFieldsOfOtherFeaturesOfGroupsAreDropped(t *testing.T) {
	obj, s := resourcetest.Read(t, rules.For, group("{schedulingPolicy: {basic: {}}, priorityClassName: p, priority: 1, disruptionMode: PodGroup, schedulingConstraints: {topology: [{key: k}]}, resourceClaims: [{name: c}]}"))
	s.PrepareCreate(obj)
	spec := obj.(*schedulingv1alpha2.PodGroup).Spec
	if spec.PriorityClassName != "" || spec.Priority != nil || spec.DisruptionMode != nil || spec.SchedulingConstraints != nil || spec.ResourceClaims != nil {
		t.Errorf("a new group has %+v", spec)
	}
	obj, s = resourcetest.Read(t, rules.For, workload("{podGroupTemplates: [{name: t, priorityClassName: p, disruptionMode: Pod}]}"))
	s.PrepareCreate(obj)
	if template := obj.(*schedulingv1alpha2.Workload).Spec.PodGroupTemplates[0]; template.PriorityClassName != "" || template.DisruptionMode != nil {
		t.Errorf("a new workload has %+v", template)
	}
}

func TestTablesOfGroupsShowTheirState(t *testing.T) {
	obj, s := resourcetest.Read(t, rules.For, group("{schedulingPolicy: {gang: {minCount: 2}}, podGroupTemplateRef: {workload: {workloadName: w}}}"))
	g := obj.(*schedulingv1alpha2.PodGroup)
	for _, c := range []struct {
		kind   string
		status metav1.ConditionStatus
		want   string
	}{
		{"", "", "Pending"},
		{schedulingv1alpha2.PodGroupScheduled, metav1.ConditionFalse, "Unschedulable"},
		{schedulingv1alpha2.PodGroupScheduled, metav1.ConditionTrue, "Scheduled"},
		{schedulingv1alpha2.DisruptionTarget, metav1.ConditionTrue, "R"},
	} {
		g.Status.Conditions = []metav1.Condition{{Type: c.kind, Status: c.status, Reason: "R"}}
		if row := s.Row(g, metav1.Time{}); row[1] != "Gang" || row[2] != "w" || row[3] != c.want {
			t.Errorf("a group that is %s %s: %v", c.kind, c.status, row)
		}
	}
}
