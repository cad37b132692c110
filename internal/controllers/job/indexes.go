package job

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// indexSet is a set of completion indexes; its text form is that of status.completedIndexes: "1,3-5,7".
type indexSet map[int]bool

// parseIndexes reads the text form, leaving out what is not below limit.
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

// indexOf is a pod's completion index; -1 when it has none.
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

// failureCount is how many pods of the index had failed before this one.
func failureCount(p *corev1.Pod) int {
	return annotatedCount(p, batchv1.JobIndexFailureCountAnnotation)
}

// ignoredFailureCount is how many failures before this one the pod failure policy ignored.
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
