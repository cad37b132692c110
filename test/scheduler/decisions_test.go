package scheduler

import (
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"
)

var (
	count = flag.Uint64("n", 300, "how many cases to compare")
	seed  = flag.Uint64("seed", 1, "of the cases; the same seed makes the same cases")
	from  = flag.Uint64("from", 0, "number of the first case")
	only  = flag.Bool("devices", false, "compare only the cases with claims and devices")
	most  = flag.Int("show", 3, "how many differing cases to show")
)

func TestMain(m *testing.M) {
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	// knarr always has it; the API server refuses such tolerations.
	if err := utilfeature.DefaultMutableFeatureGate.Set("TaintTolerationComparisonOperators=true"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	flag.Parse()
	os.Exit(m.Run())
}

// compare returns the difference between the verdicts of both schedulers.
func compare(c *Case) (ours, upstream *Verdict, difference string) {
	upstream, err := Upstream(c.Copy())
	if err != nil {
		upstream = &Verdict{Error: "the comparison itself failed: " + err.Error()}
	}
	ours = Ours(c.Copy())
	if c.Pod.Spec.Resources != nil { // upstream's NodeResourcesFit does not see them when it scores
		for _, v := range []*Verdict{ours, upstream} {
			delete(v.Scores, "NodeResourcesFit")
			v.Best, v.Score = nil, 0
		}
	}
	return ours, upstream, differences(ours, upstream)
}

func TestBothSchedulersDecideTheSame(t *testing.T) {
	var next, total atomic.Uint64
	var mu sync.Mutex // guards the maps and compared
	tally, devices, kinds := map[string]int{}, map[string]int{}, map[string][]uint64{}
	compared := 0
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < *count; i = next.Add(1) - 1 {
				number := *from + i
				c := Generate(*seed, number)
				if *only && !c.hasDevices() {
					continue
				}
				ours, upstream, difference := compare(c)
				mu.Lock()
				compared++
				if c.hasDevices() {
					devices[outcome(upstream)]++
				}
				tally[outcome(upstream)]++
				if difference != "" {
					total.Add(1)
					k := kind(ours, upstream)
					kinds[k] = append(kinds[k], number)
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	t.Logf("%d cases, %d differ: %v; with devices: %v", compared, total.Load(), tally, devices)
	shown := 0
	for _, k := range slices.Sorted(maps.Keys(kinds)) {
		slices.Sort(kinds[k])
		t.Errorf("%d cases differ in %s: %v", len(kinds[k]), k, kinds[k][:min(len(kinds[k]), 8)])
		if shown < *most {
			shown++
			t.Error(report(*seed, kinds[k][0], k))
		}
	}
}

// outcome names the kind of a case, for the summary.
func outcome(v *Verdict) string {
	switch {
	case v == nil:
		return "failed"
	case v.Gated:
		return "gated"
	case v.Error != "":
		return "error"
	case len(v.Preempts) > 0:
		return "preempts"
	case v.Everywhere != "":
		return "refused by PreFilter"
	case v.Message != "":
		return "refused"
	default:
		return "placed"
	}
}

// report shows a smaller case with the same kind of difference, and both verdicts.
func report(seed, number uint64, want string) string {
	small := Shrink(Generate(seed, number), func(c *Case) bool {
		ours, upstream, difference := compare(c)
		return difference != "" && kind(ours, upstream) == want
	})
	ours, upstream, difference := compare(small)
	text := func(v *Verdict) string {
		out, err := yaml.Marshal(v)
		if err != nil {
			return err.Error()
		}
		return string(out)
	}
	return fmt.Sprintf("case %d of seed %d:\n%s\nupstream's verdict:\n%s\nknarr's verdict:\n%s\ndifference (- upstream, + knarr):\n%s",
		number, seed, small.YAML(), text(upstream), text(ours), difference)
}
