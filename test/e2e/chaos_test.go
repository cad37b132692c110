package e2e

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/knarr-project/knarr/internal/cri"
	"github.com/knarr-project/knarr/internal/failpoint"
)

const (
	// settleTime is how long a round's pods may take. A container that ended waits 10 s and longer.
	settleTime = 90 * time.Second
	// leftoverTime is how long leftovers of an interrupted step may exist. The node looks for them
	// every minute, and some must be 30 s old.
	leftoverTime = 3 * time.Minute
)

// nodeChaos is a cluster of one node. The test kills and stops the node's processes.
type nodeChaos struct {
	*cluster
	runDir  string
	client  kubernetes.Interface
	points  *failpoints
	loops   bool // this machine has loop devices
	layer   v1.Layer
	random  *rand.Rand
	before  census // before the first pod
	service string // address of the Service
	volume  string // of the claim "hold"

	replicas int
	wanted   map[string]bool      // pods by name; true if it runs until it is deleted
	written  map[string]string    // files of the volume
	claim    string               // of class "image"
	mayFail  bool                 // a fault may cost the exit code of a pod that never restarts
	anchorID string               // the anchor's container
	shimsHit int                  // rounds in which the anchor may have been restarted
	failed   error                // of a change of the API
	left     map[string]time.Time // leftovers by the time when they were first seen
	patience time.Duration        // with leftovers
	slow     int                  // leftovers that took longer than a moment
}

// TestNodeChaos kills and stops knarr, containerd, shims and the CNI plugin while pods come and go.
// A fault strikes at a named point of knarr's code (internal/failpoint). After each round, all pods
// that should run do so and answer, and no volume has lost content. At the end nothing is left.
//
// KNARR_NODE_CHAOS_ROUNDS (default 12) and KNARR_NODE_CHAOS_SEED choose the number of rounds and
// the first seed. KNARR_NODE_CHAOS_TIME ends the rounds earlier; the default is 3 minutes without
// KNARR_NODE_CHAOS_ROUNDS, and 12 hours with it. KNARR_NODE_CHAOS_PATIENCE is how long leftovers
// may exist.
func TestNodeChaos(t *testing.T) {
	needs(t)
	rounds, limit, seed := 12, 3*time.Minute, uint64(time.Now().UnixNano())%1e9
	if text := os.Getenv("KNARR_NODE_CHAOS_ROUNDS"); text != "" {
		rounds, limit = parse(t, text), 12*time.Hour
	}
	if text := os.Getenv("KNARR_NODE_CHAOS_TIME"); text != "" {
		limit = duration(t, text)
	}
	if text := os.Getenv("KNARR_NODE_CHAOS_SEED"); text != "" {
		seed = uint64(parse(t, text))
	}
	n := newNodeChaos(t)
	counts, reached := map[string]int{}, 0
	began, done := time.Now(), 0
	for i := range rounds {
		if time.Since(began) > limit {
			break
		}
		f, at, err := n.round(i, seed+uint64(i))
		if err != nil {
			t.Fatalf("round %d (replay it with `make chaos ROUNDS=1 SEED=%d`): %s: %v", i+1, seed+uint64(i), f, err)
		}
		counts[string(f.victim)]++
		done++
		if at {
			reached++
		}
	}
	t.Logf("%d rounds in %v, %d of them at their point; victims %v; %d leftovers were removed later than at once",
		done, time.Since(began).Round(time.Second), reached, counts, n.slow)
	n.points.mu.Lock()
	t.Logf("visits of points: %v", n.points.visits)
	n.points.mu.Unlock()
	n.clear()
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func parse(t *testing.T, text string) int {
	t.Helper()
	number, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return number
}

// withFailpoints builds a knarr whose points are enabled.
func withFailpoints(t *testing.T) string {
	t.Helper()
	program, err := filepath.Abs("../../.cache/e2e/knarr-failpoints")
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w -X "+failpoint.Symbol+"=1", "-o", program, "../../cmd/knarr")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build knarr with failpoints: %v\n%s", err, out)
	}
	return program
}

func newNodeChaos(t *testing.T) *nodeChaos {
	t.Helper()
	n := &nodeChaos{
		cluster: newCluster(t, "--mount"), points: listenFailpoints(t), wanted: map[string]bool{}, written: map[string]string{},
		left: map[string]time.Time{}, patience: leftoverTime,
	}
	if text := os.Getenv("KNARR_NODE_CHAOS_PATIENCE"); text != "" {
		n.patience = duration(t, text)
	}
	n.runDir = cri.DefaultRunDir(n.dir)
	n.knarrProgram = withFailpoints(t)
	n.knarrEnv = []string{failpoint.Variable + "=" + n.points.socket}
	_, err := os.Stat("/dev/loop-control")
	n.loops = err == nil
	program := n.buildProgram("./sailor")
	n.serveRegistry(program)
	n.up()
	n.loadImage("test/sailor:v1", program)
	n.connect()
	if err := n.until(time.Minute, n.countBefore); err != nil {
		t.Fatal(err)
	}
	n.apply(imageClass + standing)
	n.replicas = 1
	n.wanted["anchor"] = true
	n.service = n.kubectl("get", "service", "crew", "-o", "jsonpath={.spec.clusterIP}")
	if err := n.until(time.Minute, n.settled); err != nil {
		t.Fatal(err)
	}
	n.volume = n.volumeOf("hold")
	uid := n.kubectl("get", "pod", "anchor", "-o", "jsonpath={.metadata.uid}")
	if err := os.WriteFile(filepath.Join(n.dir, "kubelet/pods", uid, "volumes/kubernetes.io~empty-dir/kept/word"), []byte("kept"), 0o644); err != nil {
		t.Fatal(err)
	}
	n.anchorID = n.kubectl("get", "pod", "anchor", "-o", "jsonpath={.status.containerStatuses[0].containerID}")
	return n
}

// countBefore counts what the node has before the first pod, once it changes no more.
func (n *nodeChaos) countBefore() error {
	before := n.before
	var err error
	if n.before, err = n.count(); err == nil && !maps.Equal(before, n.before) {
		err = errors.New("the node still changes")
	}
	return err
}

// until repeats fn until it returns nil, and returns its last error after the limit.
func (n *nodeChaos) until(limit time.Duration, fn func() error) error {
	for deadline := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		err := fn()
		if err == nil || n.t.Context().Err() != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %v: %w", limit, err)
		}
	}
}

// round churns pods and strikes once.
func (n *nodeChaos) round(i int, seed uint64) (fault, bool, error) {
	n.random = rand.New(rand.NewPCG(seed, 0))
	f := draw(n.random)
	// A containerd that is killed while it starts a container may lose the container's exit code.
	n.mayFail = f.stop == 0 && (f.victim == shimVictim || f.victim == containerdVictim && strings.HasPrefix(f.point, "container-"))
	began := time.Now()
	reached := n.points.arm(f)
	if f.point == "containerd-started" {
		n.hit(n.programs("containerd"), 0)
	}
	churned, late := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(churned)
		n.churn(i, f)
	}()
	go func() {
		defer close(late)
		<-churned
		_ = n.until(3*time.Second, n.settled)
	}()
	defer func() { <-late }()
	at := n.strike(f, reached, late)
	if n.cmd == nil {
		n.up()
	}
	<-late
	struck := time.Since(began)
	if n.failed != nil {
		return f, at, n.failed
	}
	if err := n.until(settleTime, n.settled); err != nil {
		return f, at, err
	}
	settled := time.Since(began)
	if err := n.kept(); err != nil {
		return f, at, err
	}
	err := n.leftovers(3 * time.Second)
	n.t.Logf("round %d: SEED=%d: %s (reached: %t); churned and struck %v, settled %v, counted %v", i+1, seed, f, at,
		struck.Round(time.Millisecond), settled.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	return f, at, err
}

// leftovers looks for what no pod owns. It waits a moment for it to go. What is left then must be
// gone in a later round.
func (n *nodeChaos) leftovers(moment time.Duration) error {
	var found []string
	err := n.until(moment, func() error {
		now, err := n.count()
		if err == nil {
			found, err = n.surplus(now)
		}
		if err == nil && len(found) > 0 {
			err = errors.New(strings.Join(found, "\n"))
		}
		return err
	})
	if err != nil && found == nil {
		return err
	}
	var tooLong []string
	for text, since := range n.left {
		if !slices.Contains(found, text) {
			delete(n.left, text)
		} else if time.Since(since) > n.patience {
			tooLong = append(tooLong, text)
		}
	}
	if err == nil {
		return nil
	}
	for _, text := range found {
		if _, known := n.left[text]; !known {
			n.left[text] = time.Now()
			n.slow++
			n.t.Logf("still there after %v: %s", moment, text)
		}
	}
	if len(tooLong) > 0 {
		return fmt.Errorf("left for more than %v:\n%s", n.patience, strings.Join(tooLong, "\n"))
	}
	return nil
}

// clear deletes all workloads and compares the node with its state before them.
func (n *nodeChaos) clear() {
	n.t.Helper()
	n.points.disarm()
	n.kubectl("delete", "deployment,service,pod,pvc", "--all", "--namespace=default", "--timeout=120s")
	began := time.Now()
	n.replicas, n.wanted = 0, map[string]bool{}
	err := n.until(n.patience, func() error {
		now, err := n.count()
		if err != nil {
			return err
		}
		var left []string
		for text := range now {
			if !n.before[text] {
				left = append(left, text)
			}
		}
		slices.Sort(left)
		if len(left) > 0 {
			return errors.New("left:\n" + strings.Join(left, "\n"))
		}
		var lost []string
		for text := range n.before {
			if !now[text] {
				lost = append(lost, text)
			}
		}
		if len(lost) > 0 {
			return errors.New("lost:\n" + strings.Join(lost, "\n"))
		}
		return nil
	})
	if err != nil {
		n.t.Error(err)
	}
	n.t.Logf("all workloads are gone, and the node is as before %v later", time.Since(began).Round(time.Millisecond))
	n.stop(syscall.SIGTERM)
}
