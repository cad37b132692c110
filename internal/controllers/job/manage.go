package job

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/controller"
)

const (
	completionIndexEnv = "JOB_COMPLETION_INDEX"
	maxGenerateName    = 63 - 5 // room for the random suffix
)

// act brings the number of active pods to the wanted one.
func (r *round) act(ctx context.Context) error {
	if r.done != nil || (r.suspended() && r.job.DeletionTimestamp == nil) {
		return r.delete(ctx, r.active)
	}
	if r.job.DeletionTimestamp != nil {
		return nil
	}
	want := r.want()
	if excess := r.excess(want); len(excess) > 0 {
		return r.delete(ctx, excess)
	}
	missing := want - len(r.active)
	if onlyReplaceFailed(r.job) {
		missing -= int(r.terminating)
	}
	if missing <= 0 {
		return nil
	}
	if !r.perIndex() {
		if rest := r.backoffOf(r.job.UID).remaining(r.start); rest > 0 {
			r.requeueIn(rest)
			return nil
		}
	}
	return r.create(ctx, min(missing, maxPodsPerSync))
}

// want returns the number of pods that should be active.
func (r *round) want() int {
	parallelism := 1
	if r.job.Spec.Parallelism != nil {
		parallelism = int(*r.job.Spec.Parallelism)
	}
	if r.job.Spec.Completions == nil {
		if r.succeeded > 0 {
			// The work queue is empty: the active pods may finish.
			return min(len(r.active), parallelism)
		}
		return parallelism
	}
	rest := r.completions() - int(r.succeeded)
	if r.perIndex() {
		rest -= len(r.failedIndexes)
	}
	return max(0, min(rest, parallelism))
}

// excess chooses the active pods to delete. These are pods whose index is not wanted or taken
// twice, then the youngest and least advanced pods beyond want.
func (r *round) excess(want int) []*corev1.Pod {
	sorted := slices.Clone(r.active)
	slices.SortStableFunc(sorted, func(a, b *corev1.Pod) int {
		if c := cmp.Compare(advance(a), advance(b)); c != 0 {
			return c
		}
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
	var excess, rest []*corev1.Pod
	if r.indexed() {
		holder := map[int]*corev1.Pod{}
		for _, p := range sorted { // the most advanced pod of an index comes last and stays
			holder[indexOf(p)] = p
		}
		for _, p := range sorted {
			i := indexOf(p)
			if i < 0 || i >= r.completions() || r.succeededIndexes[i] || r.failedIndexes[i] || holder[i] != p {
				excess = append(excess, p)
			} else {
				rest = append(rest, p)
			}
		}
	} else {
		rest = sorted
	}
	if n := len(rest) - want; n > 0 {
		excess = append(excess, rest[:n]...)
	}
	return excess[:min(len(excess), maxPodsPerSync)]
}

// advance ranks a pod's progress: bound, running, ready.
func advance(p *corev1.Pod) int {
	n := 0
	if p.Spec.NodeName != "" {
		n++
	}
	if p.Status.Phase == corev1.PodRunning {
		n += 2
	}
	if controller.PodReady(p) {
		n += 4
	}
	return n
}

func (r *round) delete(ctx context.Context, pods []*corev1.Pod) error {
	return controller.All(len(pods), func(i int) error { return r.control.Delete(ctx, r.job, pods[i]) })
}

// create creates pods. Those of an Indexed job get the lowest free indexes.
func (r *round) create(ctx context.Context, count int) error {
	var indexes []int
	if r.indexed() {
		indexes = r.pending(count)
		count = len(indexes)
	}
	ref := metav1.NewControllerRef(r.job, kind)
	_, err := controller.SlowStart(count, 1, func(i int) error {
		p := controller.PodFromTemplate(&r.job.Spec.Template, r.job, ref)
		if r.indexed() {
			r.setIndex(p, indexes[i])
		}
		if !slices.Contains(p.Finalizers, finalizer) {
			p.Finalizers = append(p.Finalizers, finalizer)
		}
		_, err := r.control.Create(ctx, r.job, p)
		return err
	})
	return err
}

// pending returns the first indexes that have neither an active nor a finished pod.
func (r *round) pending(count int) []int {
	taken := indexSet{}
	for _, p := range r.active {
		taken[indexOf(p)] = true
	}
	if onlyReplaceFailed(r.job) {
		for _, p := range r.pods {
			if p.DeletionTimestamp != nil && !controller.PodEnded(p) {
				taken[indexOf(p)] = true
			}
		}
	}
	var out []int
	for i := 0; i < r.completions() && len(out) < count; i++ {
		if taken[i] || r.succeededIndexes[i] || r.failedIndexes[i] {
			continue
		}
		if last := r.delayed[i]; last != nil {
			failures := failureCount(last) + ignoredFailureCount(last) + 1
			if rest := pause(failures, endOf(last, r.start), r.start); rest > 0 {
				r.requeueIn(rest)
				continue
			}
		}
		out = append(out, i)
	}
	return out
}

// setIndex writes the completion index into a pod's name, host name, annotation, label and
// environment.
func (r *round) setIndex(p *corev1.Pod, index int) {
	text := strconv.Itoa(index)
	p.Annotations = with(p.Annotations, batchv1.JobCompletionIndexAnnotation, text)
	p.Labels = with(p.Labels, batchv1.JobCompletionIndexAnnotation, text)
	p.Spec.Hostname = fmt.Sprintf("%s-%d", r.job.Name, index)
	suffix := "-" + text + "-"
	p.GenerateName = r.job.Name[:min(len(r.job.Name), maxGenerateName-len(suffix))] + suffix
	if r.perIndex() {
		failures, ignored := 0, 0
		if last := r.delayed[index]; last != nil {
			failures, ignored = failureCount(last), ignoredFailureCount(last)
			if judge(r.job, last).counts {
				failures++
			} else {
				ignored++
			}
		}
		p.Annotations[batchv1.JobIndexFailureCountAnnotation] = strconv.Itoa(failures)
		if ignored > 0 {
			p.Annotations["batch.kubernetes.io/job-index-ignored-failure-count"] = strconv.Itoa(ignored)
		}
	}
	for i := range p.Spec.InitContainers {
		setIndexEnv(&p.Spec.InitContainers[i])
	}
	for i := range p.Spec.Containers {
		setIndexEnv(&p.Spec.Containers[i])
	}
}

func setIndexEnv(c *corev1.Container) {
	if slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool { return e.Name == completionIndexEnv }) {
		return
	}
	c.Env = append(c.Env, corev1.EnvVar{Name: completionIndexEnv, ValueFrom: &corev1.EnvVarSource{
		FieldRef: &corev1.ObjectFieldSelector{FieldPath: fmt.Sprintf("metadata.annotations['%s']", batchv1.JobCompletionIndexAnnotation)},
	}})
}

func with(m map[string]string, k, v string) map[string]string {
	m = maps.Clone(m)
	if m == nil {
		m = map[string]string{}
	}
	m[k] = v
	return m
}
