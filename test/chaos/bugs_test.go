package chaos

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/knarr-project/knarr/internal/failpoint"
)

// seededBug is a bug that the build with failpoints has on request (failpoint.Bug).
type seededBug struct {
	name string
	// mistake says what the code does wrong.
	mistake string
	// where names the setup that shows the bug.
	where setup
	// most is the number of histories within which the checks must find the bug.
	most int
	// quick bugs are found within a few seconds.
	quick bool
}

type setup string

const (
	oneServer    setup = "one server"
	threeServers setup = "three servers"
)

var seededBugs = []seededBug{
	{name: "watch-resume-skips", mistake: "a resumed watch skips the first event", where: oneServer, most: 20, quick: true},
	{name: "watch-gap-without-410", mistake: "a watch from a revision that left the log gets no 410", where: oneServer, most: 20, quick: true},
	{name: "selector-forgets", mistake: "a watch reports no deletion when an object stops to match", where: oneServer, most: 20, quick: true},
	{name: "exact-list-off-by-one", mistake: "a list at an old revision has one change too many", where: oneServer, most: 40, quick: true},
	{name: "page-of-newest-state", mistake: "a list's next page shows the newest state", where: oneServer, most: 20, quick: true},
	{name: "conflict-overwritten", mistake: "an update that conflicts is committed without its condition", where: oneServer, most: 40, quick: true},
	{name: "delete-without-condition", mistake: "a deletion decided on a cached state is committed without a condition", where: oneServer, most: 40, quick: true},
	{name: "read-before-caught-up", mistake: "the cache answers before it has caught up with the store", where: threeServers, most: 60},
}

// bugsToTry returns the bugs of KNARR_CHAOS_BUGS: names with commas between, or 1 for all. Without
// it, they are the quick ones, as many as fit into a time.
func bugsToTry(t *testing.T) (bugs []seededBug, enough time.Duration) {
	text := os.Getenv("KNARR_CHAOS_BUGS")
	switch text {
	case "":
		for _, b := range seededBugs {
			if b.quick {
				bugs = append(bugs, b)
			}
		}
		return bugs, time.Minute
	case "1":
		return seededBugs, time.Hour
	}
	for _, name := range strings.Split(text, ",") {
		i := slices.IndexFunc(seededBugs, func(b seededBug) bool { return b.name == name })
		if i < 0 {
			t.Fatalf("KNARR_CHAOS_BUGS=%q: there is no seeded bug %q", text, name)
		}
		bugs = append(bugs, seededBugs[i])
	}
	return bugs, time.Hour
}

// The checks of this package would be worth nothing if they found no bugs. Each seeded bug must be
// found within its number of histories.
func TestSeededBugsAreFound(t *testing.T) {
	if testing.Short() {
		t.Skip("starts servers")
	}
	program := withBugs(t)
	start := seed(t)
	t.Logf("KNARR_CHAOS_SEED=%d", start)
	random := rand.New(rand.NewPCG(start, 0))
	bugs, enough := bugsToTry(t)
	random.Shuffle(len(bugs), func(i, j int) { bugs[i], bugs[j] = bugs[j], bugs[i] })
	began := time.Now()
	for i, b := range bugs {
		if time.Since(began) > enough {
			t.Logf("%d bugs are left for another run", len(bugs)-i)
			break
		}
		t.Run(b.name, func(t *testing.T) {
			since := time.Now()
			n, found := b.find(t, program, start)
			if found == nil {
				t.Fatalf("%s: not found in %d histories of seed %d", b.mistake, n, start)
			}
			first, _, _ := strings.Cut(found.Error(), "\n")
			t.Logf("| `%s` | %s | %d | %.0f s | %.160s |", b.name, b.where, n, time.Since(since).Seconds(), first)
		})
	}
}

// find makes histories until one shows the bug. It returns their number and what a check found.
func (b *seededBug) find(t *testing.T, program string, start uint64) (n int, found error) {
	t.Helper()
	env := []string{failpoint.BugsVariable + "=" + b.name}
	if b.where == threeServers {
		return b.findInCluster(t, program, env, start)
	}
	dir := shortDir(t)
	s := &server{t: t, dir: dir, program: program, env: env}
	s.run()
	if err := s.define(); err != nil {
		t.Fatal(err)
	}
	for n < b.most {
		records := round(t, s, fmt.Sprintf("round-%d", n), rand.New(rand.NewPCG(start, uint64(n))))
		n++
		for _, r := range records {
			if err := r.check(); err != nil {
				return n, fmt.Errorf("%s: %w", r.kind.name, err)
			}
		}
	}
	return n, nil
}

// withBugs builds a knarr with failpoints; the file is the one of the tests of nodes.
func withBugs(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat(binary()); err != nil {
		t.Skip("needs make build: ", err)
	}
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

// Each seeded bug of the code is in the table, and the other way round.
func TestAllSeededBugsAreInTheTable(t *testing.T) {
	inCode, inTable := map[string]string{}, map[string]bool{}
	call := regexp.MustCompile(`failpoint\.Bug\(("[^"]*")\)`)
	err := filepath.WalkDir("../../internal", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, m := range call.FindAllStringSubmatch(string(text), -1) {
			name, err := strconv.Unquote(m[1])
			if err != nil {
				return err
			}
			inCode[name] = path
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range seededBugs {
		inTable[b.name] = true
		if inCode[b.name] == "" {
			t.Errorf("no code has the bug %s of the table", b.name)
		}
	}
	for name, path := range inCode {
		if !inTable[name] {
			t.Errorf("%s: no test is to find the bug %s", path, name)
		}
	}
}
