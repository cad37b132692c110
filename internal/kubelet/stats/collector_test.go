package stats

import (
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The included runtime reports no rates, because of the configuration in internal/cri.
func TestCPURatesAreMeasuredBetweenTwoReadings(t *testing.T) {
	c := New(Config{Now: time.Now})
	began := time.Unix(1_000_000, 0)
	for _, question := range []struct {
		name  string
		after time.Duration
		total uint64
		want  *uint64
	}{
		{"the first has nothing to compare with", 0, 1e9, nil},
		{"half a core for ten seconds", 10 * time.Second, 6e9, ptr(uint64(5e8))},
		{"right after that the rate stays", 10*time.Second + time.Millisecond, 7e9, ptr(uint64(5e8))},
		{"an idle minute", 70 * time.Second, 6e9, ptr(uint64(0))},
		{"a container that was started again counts from its start", 80 * time.Second, 1e9, nil},
		{"and is compared with that", 81 * time.Second, 2e9, ptr(uint64(1e9))},
	} {
		got := c.cpu("pod/container", &runtimeapi.CpuUsage{Timestamp: began.Add(question.after).UnixNano(), UsageCoreNanoSeconds: &runtimeapi.UInt64Value{Value: question.total}})
		if (got.UsageNanoCores == nil) != (question.want == nil) || question.want != nil && *got.UsageNanoCores != *question.want {
			t.Errorf("%s: %v, want %v", question.name, got.UsageNanoCores, question.want)
		}
	}
}
