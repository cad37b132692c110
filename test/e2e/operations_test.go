package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/knarr-project/knarr/test/docs"
)

// operationsNetwork is the network of the pages, whose servers are 10.0.0.1, 10.0.0.2 and so on.
const operationsNetwork = "10.0.0"

// fixed are machines of the pages whose address does not follow from their place in a scenario.
var fixed = map[string]int{"etcd": 9, "worker": 10, "laptop": 20}

// TestOperations runs every command of docs/operations on the machine that its prompt names. Each
// scenario has machines of its own. A command must succeed and print what the page shows.
func TestOperations(t *testing.T) {
	for _, s := range docs.Operations {
		t.Run(strings.ReplaceAll(s.Name, " ", "-"), func(t *testing.T) {
			t.Parallel()
			var places []place
			for i, name := range s.Machines {
				number := i + 1
				if fixed[name] != 0 {
					number = fixed[name]
				}
				places = append(places, place{name, number})
			}
			w := newWalkIn(t, operationsNetwork, t.TempDir(), places...)
			if s.Replaces {
				w.ownPrograms(t)
			}
			for program, pkg := range s.Programs {
				w.addProgram(t, program, pkg)
			}
			for _, page := range s.Pages {
				ok := t.Run(page, func(t *testing.T) {
					w.page(t, "docs/operations/"+page+".md")
				})
				if !ok {
					t.Fatal("the pages after this one need its cluster")
				}
			}
		})
	}
}

// ownPrograms gives each machine a knarr in a file of its own.
func (w *walk) ownPrograms(t *testing.T) {
	t.Helper()
	for name, m := range w.machines {
		if name == "" {
			continue
		}
		program := filepath.Join(m.bin, "knarr")
		if err := os.Remove(program); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("cp", binary, program).CombinedOutput(); err != nil {
			t.Fatalf("copy knarr: %v\n%s", err, out)
		}
	}
}

// nextRelease is newer than that of the knarr under test.
const nextRelease = "-X github.com/knarr-project/knarr/internal/version.release=v1.36.3+knarr1"

// addProgram builds a program that the commands of a page need, and puts it into the machines'
// path.
func (w *walk) addProgram(t *testing.T, name, pkg string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	flags := "-s -w"
	if strings.HasSuffix(pkg, "/cmd/knarr") {
		flags += " " + nextRelease
	}
	cmd := exec.Command("go", "build", "-ldflags", flags, "-o", program, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	for machine, m := range w.machines {
		if machine == "" {
			continue
		}
		if err := os.Symlink(program, filepath.Join(m.bin, name)); err != nil {
			t.Fatal(err)
		}
	}
}
