package batch

import (
	"fmt"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/knarr-project/knarr/internal/resource/resourcetest"
)

func TestManyIndexesOfJobsAreComparedInOrder(t *testing.T) {
	indexes := func(completed, failed string) field.ErrorList {
		completions, limit, mode := int32(1_000_000), int32(1), batchv1.IndexedCompletion
		j := &batchv1.Job{Spec: batchv1.JobSpec{Completions: &completions, BackoffLimitPerIndex: &limit, CompletionMode: &mode}}
		j.Status.CompletedIndexes, j.Status.FailedIndexes = completed, &failed
		return validateJobIndexes(j, &batchv1.Job{}, field.NewPath("status"))
	}
	var even, odd string
	{
		evens, odds := make([]byte, 0, 8*resourcetest.LongList), make([]byte, 0, 8*resourcetest.LongList)
		for i := range resourcetest.LongList {
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

func TestJobsGetASelectorAndLabels(t *testing.T) {
	s := JobStrategy()
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "pi", UID: "u"}}
	s.Default(j)
	s.PrepareCreate(j)
	for _, key := range []string{batchv1.ControllerUidLabel, "controller-uid"} {
		if j.Spec.Template.Labels[key] != "u" {
			t.Errorf("labels %v", j.Spec.Template.Labels)
		}
	}
	if got := j.Spec.Selector.MatchLabels; len(got) != 1 || got[batchv1.ControllerUidLabel] != "u" {
		t.Errorf("selector %v", got)
	}
	manual := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "pi", UID: "u"}, Spec: batchv1.JobSpec{ManualSelector: ptr.To(true)}}
	s.PrepareCreate(manual)
	if manual.Spec.Selector != nil || manual.Spec.Template.Labels != nil {
		t.Errorf("a manual selector was changed: %+v", manual.Spec)
	}
	if s.DefaultPropagation != metav1.DeletePropagationOrphan {
		t.Error("batch/v1 orphans pods by default")
	}
}
