// Envtest compares knarrtest/envtest with controller-runtime's envtest on upstream's kube-apiserver
// and etcd. It measures the time from the start to the first successful write, memory, and the time
// of a suite of small tests. It prints a table and ends.
//
// Each measurement runs in its own process: this program with -side and -what.
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// measures lists the measurements, each with the number of processes started for it.
var measures = []struct {
	what  string
	times int
}{{start, 5}, {shared, 3}, {own, 1}}

func main() {
	side := flag.String("side", "", "set by the program itself: "+strings.Join(sideNames(), " or "))
	what := flag.String("what", "", "set by the program itself: what is measured")
	tests := flag.Int("tests", 30, "tests of the suite")
	out := flag.String("out", "", "file for the table (Markdown)")
	flag.Parse()
	if *side != "" {
		log.SetLogger(logr.Discard())
		result, err := measure(*side, *what, *tests)
		if err == nil {
			err = json.NewEncoder(os.Stdout).Encode(result)
		}
		fail(err)
		return
	}
	table, err := compare(*tests)
	fail(err)
	fmt.Print(table)
	if *out != "" {
		fail(os.WriteFile(*out, []byte(table), 0o644))
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "envtest:", err)
		os.Exit(1)
	}
}

// compare runs all measurements of both sides in turn, and returns a table of their medians.
func compare(tests int) (string, error) {
	found := map[string]map[string][]float64{}
	for _, m := range measures {
		for i := range m.times {
			for _, side := range sideNames() {
				fmt.Fprintf(os.Stderr, "envtest: %s, %s, %d of %d\n", side, m.what, i+1, m.times)
				result, err := run(side, m.what, tests)
				if err != nil {
					return "", fmt.Errorf("%s, %s: %w", side, m.what, err)
				}
				for key, value := range result {
					if found[key] == nil {
						found[key] = map[string][]float64{}
					}
					found[key][side] = append(found[key][side], value)
				}
			}
		}
	}
	var b strings.Builder
	names := sideNames()
	fmt.Fprintf(&b, "| | %s | %s | ratio |\n|---|---|---|---|\n", names[0], names[1])
	for _, row := range rows(tests) {
		a, c := median(found[row.key][names[0]]), median(found[row.key][names[1]])
		fmt.Fprintf(&b, "| %s | %.2f %s | %.2f %s | %.1f |\n", row.text, a, row.unit, c, row.unit, a/c)
	}
	return b.String(), nil
}

// patience limits one process. A longer run means that it is broken.
const patience = 10 * time.Minute

func run(side, what string, tests int) (map[string]float64, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("timeout", fmt.Sprint(patience.Seconds()), self, "-side", side, "-what", what, "-tests", fmt.Sprint(tests))
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	var result map[string]float64
	return result, json.Unmarshal(text, &result)
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.SortedFunc(slices.Values(values), cmp.Compare[float64])
	return sorted[len(sorted)/2]
}
