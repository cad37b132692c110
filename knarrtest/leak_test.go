package knarrtest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/knarrtest"
)

// alone makes the leak test run in a program of its own, because clusters of other tests have
// goroutines too.
const alone = "KNARRTEST_LEAK_TEST"

func TestAClusterLeavesNothing(t *testing.T) {
	if os.Getenv(alone) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestAClusterLeavesNothing$", "-test.v")
		cmd.Env = append(os.Environ(), alone+"=1", "TMPDIR="+t.TempDir())
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	warm := func() {
		c, err := knarrtest.New(knarrtest.WithNodes(2))
		if err != nil {
			t.Fatal(err)
		}
		k, err := kubernetes.NewForConfig(c.Config())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := c.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	warm() // starts goroutines that a program has once
	before := count(goroutines())
	for range 3 {
		warm()
	}
	var after map[string]int
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		after = count(goroutines())
		if len(more(before, after)) == 0 || time.Now().After(deadline) {
			break
		}
	}
	for where, n := range more(before, after) {
		t.Errorf("%d more goroutines of\n%s", n, where)
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left in the temporary folder: %v, %v", left, err)
	}
}

var numbers = regexp.MustCompile(`0x[0-9a-f]+|goroutine \d+|\+0x[0-9a-f]+|, \d+ minutes|\[[^\]]*\]:|in goroutine \d+`)

// count counts goroutines by stack.
func count(dump string) map[string]int {
	out := map[string]int{}
	for _, g := range strings.Split(dump, "\n\n") {
		_, stack, _ := strings.Cut(g, "\n")
		out[numbers.ReplaceAllString(stack, "")]++
	}
	return out
}

func more(before, after map[string]int) map[string]int {
	out := map[string]int{}
	for where, n := range after {
		if n > before[where] && !strings.Contains(where, "testing.(*T).Run") {
			out[where] = n - before[where]
		}
	}
	return out
}
