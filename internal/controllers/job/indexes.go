package job

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// indexSet is a set of completion indexes. Its text form is that of status.completedIndexes, such
// as "1,3-5,7".
type indexSet map[int]bool

// parseIndexes reads the text form and drops indexes not below limit.
func parseIndexes(text string, limit int) indexSet {
	set := indexSet{}
	if text == "" {
		return set
	}
	for _, part := range strings.Split(text, ",") {
		first, last, isRange := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		if err != nil {
			continue
		}
		to := from
		if isRange {
			if to, err = strconv.Atoi(last); err != nil {
				continue
			}
		}
		for i := from; i <= to && i < limit; i++ {
			set[i] = true
		}
	}
	return set
}

func (s indexSet) String() string {
	sorted := slices.Sorted(maps.Keys(s))
	var b strings.Builder
	for i := 0; i < len(sorted); {
		j := i
		for j+1 < len(sorted) && sorted[j+1] == sorted[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(sorted[i]))
		if j > i {
			if j == i+1 {
				b.WriteByte(',')
			} else {
				b.WriteByte('-')
			}
			b.WriteString(strconv.Itoa(sorted[j]))
		}
		i = j + 1
	}
	return b.String()
}

// indexOf returns a pod's completion index, or -1.
func indexOf(p *corev1.Pod) int {
	text, ok := p.Annotations[batchv1.JobCompletionIndexAnnotation]
	if !ok {
		return -1
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return -1
	}
	return n
}

// failureCount returns the number of failed pods of the index before this one.
func failureCount(p *corev1.Pod) int {
	return annotatedCount(p, batchv1.JobIndexFailureCountAnnotation)
}

// ignoredFailureCount returns the number of failures before this pod that the pod failure policy
// ignored.
func ignoredFailureCount(p *corev1.Pod) int {
	return annotatedCount(p, "batch.kubernetes.io/job-index-ignored-failure-count")
}

func annotatedCount(p *corev1.Pod, name string) int {
	n, err := strconv.Atoi(p.Annotations[name])
	if err != nil {
		return 0
	}
	return n
}
