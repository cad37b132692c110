package resource

import (
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/knarr-project/knarr/internal/resource/strategy"
	"github.com/knarr-project/knarr/internal/resource/validate"
)

// longList is the length of the lists below, which fits into a request body. Comparing every pair
// would take tens of billions of comparisons.
const longList = 100_000

// numbered makes a list of longList elements.
func numbered[T any](element func(i int) T) []T {
	out := make([]T, longList)
	for i := range out {
		out[i] = element(i)
	}
	return out
}

func text(i int) string { return fmt.Sprintf("n%06d", i) }

// ofType counts the errors of one type.
func ofType(errs field.ErrorList, kind field.ErrorType) (n int) {
	for _, err := range errs {
		if err.Type == kind {
			n++
		}
	}
	return n
}

func TestLongListsAreNotComparedEachWithEach(t *testing.T) {
	names := numbered(text)
	tolerations := numbered(func(i int) corev1.Toleration {
		seconds := int64(i % 2)
		return corev1.Toleration{Key: text(i / 2), Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds}
	})
	// The last toleration equals an earlier one, with its seconds behind another pointer.
	again := func(list []corev1.Toleration) []corev1.Toleration {
		same := list[1]
		seconds := *same.TolerationSeconds
		same.TolerationSeconds = &seconds
		return append(list[:len(list):len(list)], same)
	}
	spread := numbered(func(i int) corev1.TopologySpreadConstraint {
		return corev1.TopologySpreadConstraint{MaxSkew: 1, TopologyKey: text(i), WhenUnsatisfiable: corev1.DoNotSchedule}
	})
	spread = append(spread, spread[0])
	gates := func(n int) []corev1.PodSchedulingGate {
		return numbered(func(i int) corev1.PodSchedulingGate { return corev1.PodSchedulingGate{Name: text(i + n)} })
	}
	expressions := numbered(func(i int) metav1.LabelSelectorRequirement {
		return metav1.LabelSelectorRequirement{Key: text(i), Operator: metav1.LabelSelectorOpIn, Values: []string{"a"}}
	})
	expressions = append(expressions, expressions[0], metav1.LabelSelectorRequirement{Key: text(1), Operator: metav1.LabelSelectorOpExists})
	path := field.NewPath("x")
	for name, c := range map[string]struct {
		errs  field.ErrorList
		kind  field.ErrorType
		count int
	}{
		"usages of a certificate": {validateCertificateRequest(&certificatesv1.CertificateSigningRequest{Spec: certificatesv1.CertificateSigningRequestSpec{
			Usages: append(numbered(func(i int) certificatesv1.KeyUsage { return certificatesv1.KeyUsage(text(i)) }), "n000000")}}), field.ErrorTypeDuplicate, 1},
		"binding conditions":    {validateBindingConditions(append(names, names[0]), append(names, names[1]), path), field.ErrorTypeDuplicate, 2},
		"both lists of keys":    {validatePodTerm(&corev1.PodAffinityTerm{TopologyKey: "a", LabelSelector: &metav1.LabelSelector{}, MatchLabelKeys: names, MismatchLabelKeys: names[:2]}, path), field.ErrorTypeInvalid, 2},
		"keys and a selector":   {validateMatchKeys(names, &metav1.LabelSelector{MatchExpressions: expressions}, "matchLabelKeys", path), field.ErrorTypeInvalid, 2},
		"spread constraints":    {validateSpread(spread, path), field.ErrorTypeDuplicate, 1},
		"a class's tolerations": {validateClassTolerations(again(tolerations), path), field.ErrorTypeDuplicate, 1},
		"tolerations as before": {validateAddedTolerations(tolerations, tolerations, path), field.ErrorTypeForbidden, 0},
		"a toleration less":     {validateAddedTolerations(tolerations[2:], tolerations, path), field.ErrorTypeForbidden, 1},
		"scheduling gates": {validatePodUpdate(&corev1.Pod{Spec: corev1.PodSpec{SchedulingGates: gates(1)}}, &corev1.Pod{Spec: corev1.PodSpec{SchedulingGates: gates(0)}}).Filter(func(err error) bool {
			e, ok := err.(*field.Error)
			return !ok || e.Detail != "only deletion is allowed, but found new scheduling gate '"+text(longList)+"'"
		}), field.ErrorTypeForbidden, 1},
	} {
		if n := ofType(c.errs, c.kind); n != c.count {
			t.Errorf("%s: %d errors of the type %s, want %d", name, n, c.kind, c.count)
		}
	}
	if got := strategy.FinalizerWarnings(&metav1.ObjectMeta{Finalizers: append(names, "new")}, &metav1.ObjectMeta{Finalizers: names}); len(got) != 1 {
		t.Errorf("%d warnings of finalizers, want 1", len(got))
	}
}

func TestStatusesAreNotComparedEachWithEach(t *testing.T) {
	containers := numbered(func(i int) corev1.Container { return corev1.Container{Name: text(i)} })
	statuses := numbered(func(i int) corev1.ContainerStatus {
		s := corev1.ContainerStatus{Name: text(i), AllocatedResourcesStatus: []corev1.ResourceStatus{{Name: "claim:b"}}}
		return s
	})
	p := &corev1.Pod{Spec: corev1.PodSpec{Containers: containers}, Status: corev1.PodStatus{ContainerStatuses: statuses}}
	p.Spec.Containers[longList-1].Resources.Claims = []corev1.ResourceClaim{{Name: "b"}}
	// Only the last status has the claim.
	if errs := validateContainerStatuses(p, field.NewPath("status")); len(errs) != longList-1 {
		t.Errorf("%d errors of statuses, want %d", len(errs), longList-1)
	}
	many := corev1.ResourceRequirements{Claims: numbered(func(i int) corev1.ResourceClaim { return corev1.ResourceClaim{Name: text(i), Request: "r"} })}
	devices := numbered(func(i int) corev1.ResourceStatus {
		return corev1.ResourceStatus{Name: corev1.ResourceName("claim:" + text(i) + []string{"", "/r", "/s"}[i%3])}
	})
	if errs := validateDeviceHealth(devices, &many, field.NewPath("x")); len(errs) != longList/3 {
		t.Errorf("%d errors of devices, want %d", len(errs), longList/3)
	}
	ended := numbered(func(i int) corev1.ContainerStatus {
		return corev1.ContainerStatus{Name: text(i), State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}}
	})
	never := &corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever}
	if errs := validateTransitions(statuses[1:], ended, never, containers, field.NewPath("x")); len(errs) != validate.MaxRepeated {
		t.Errorf("%d errors of %d", len(errs), longList-1)
	}
	if errs := validateTransitions(ended, ended, never, containers, field.NewPath("x")); len(errs) != 0 {
		t.Error(errs)
	}
	// All have the same name: every pair of an old and a new status is an illegal transition.
	for i := range ended {
		ended[i].Name, statuses[i].Name = "a", "a"
	}
	if errs := validateTransitions(statuses, ended, never, containers, field.NewPath("x")); len(errs) != validate.MaxRepeated {
		t.Errorf("%d errors of %d times %d", len(errs), longList, longList)
	}
	now, before := metav1.Unix(1, 0), metav1.NewTime(time.Unix(2, 0))
	conditions := func(at metav1.Time) []certificatesv1.CertificateSigningRequestCondition {
		return numbered(func(i int) certificatesv1.CertificateSigningRequestCondition {
			return certificatesv1.CertificateSigningRequestCondition{Type: certificatesv1.RequestConditionType(text(i)), Status: "True", LastTransitionTime: at}
		})
	}
	is := conditions(metav1.Time{})
	is[0].Status = "False"
	stampConditions(is, conditions(before), now)
	if !is[0].LastTransitionTime.Equal(&now) || !is[longList-1].LastTransitionTime.Equal(&before) {
		t.Errorf("%v, %v", is[0], is[longList-1])
	}
}

func TestAQuotasScopesAreAskedOnceEach(t *testing.T) {
	q := &corev1.ResourceQuota{Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{}, ScopeSelector: &corev1.ScopeSelector{}}}
	for i := range longList {
		q.Spec.Hard[corev1.ResourceName("hugepages-"+text(i))] = resource.MustParse("1")
	}
	q.Spec.Scopes = numbered(func(int) corev1.ResourceQuotaScope { return corev1.ResourceQuotaScopeBestEffort })
	q.Spec.ScopeSelector.MatchExpressions = numbered(func(int) corev1.ScopedResourceSelectorRequirement {
		return corev1.ScopedResourceSelectorRequirement{ScopeName: corev1.ResourceQuotaScopeBestEffort, Operator: corev1.ScopeSelectorOpExists}
	})
	if errs := append(validateQuotaScopes(q), validateQuotaSelector(q)...); len(errs) != 2*validate.MaxRepeated {
		t.Errorf("%d errors, want %d of each", len(errs), validate.MaxRepeated)
	}
	q.Spec.Hard = corev1.ResourceList{"services": {}, "secrets": {}, "pods": {}}
	q.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort, corev1.ResourceQuotaScopeTerminating}
	if errs := validateQuotaScopes(q); len(errs) != 4 {
		t.Error(errs)
	}
}

func TestIndexesOfJobsAreComparedInOrder(t *testing.T) {
	indexes := func(completed, failed string) field.ErrorList {
		completions, limit, mode := int32(1_000_000), int32(1), batchv1.IndexedCompletion
		j := &batchv1.Job{Spec: batchv1.JobSpec{Completions: &completions, BackoffLimitPerIndex: &limit, CompletionMode: &mode}}
		j.Status.CompletedIndexes, j.Status.FailedIndexes = completed, &failed
		return validateJobIndexes(j, &batchv1.Job{}, field.NewPath("status"))
	}
	var even, odd string
	{
		evens, odds := make([]byte, 0, 8*longList), make([]byte, 0, 8*longList)
		for i := range longList {
			evens, odds = fmt.Appendf(evens, "%d,", 2*i), fmt.Appendf(odds, "%d,", 2*i+1)
		}
		even, odd = string(evens[:len(evens)-1]), string(odds[:len(odds)-1])
	}
	for _, c := range []struct{ completed, failed, want string }{
		{even, odd, ""}, {even, odd + ",900000", ""}, {even + ",900000-900005", odd + ",900003", "900003"},
		{"1-3,7-9", "4-6,10", ""}, {"1-3,7-9", "3-8", "3"}, {"5", "1-9", "5"}, {"1,5-7", "2-3,7-8", "7"}, {"", "1", ""},
	} {
		errs := indexes(c.completed, c.failed)
		want := "failedIndexes and completedIndexes overlap at index: " + c.want
		if c.want == "" && len(errs) > 0 || c.want != "" && (len(errs) != 1 || errs[0].Detail != want) {
			t.Errorf("%.20s and %.20s: %.500v, want %q", c.completed, c.failed, errs, c.want)
		}
	}
}
