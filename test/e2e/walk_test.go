package e2e

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/knarr-project/knarr/test/docs"
)

var updateWalks = flag.Bool("walk.update", false, "write the output of the commands into the pages")

// walks lists the pages whose commands run, in this order. Pages of one cluster share it and leave
// nothing in it; a page with machines starts its own. The cluster's first page builds the image
// that the others use.
var walks = []struct {
	page     string
	machines []string // none: the page uses the shared cluster
}{
	{"docs/start/installation.md", nil},
	{"docs/start/first-application.md", nil},
	{"docs/start/what-was-started.md", nil},
	{"docs/guides/build-and-run.md", nil},
	{"docs/guides/scheduling.md", nil},
	{"docs/guides/storage.md", nil},
	{"docs/guides/validation.md", nil},
	{"docs/guides/expose.md", nil},
	{"docs/guides/images.md", nil},
	{"docs/guides/helm-and-operators.md", nil},
	{"docs/guides/ci.md", []string{"runner"}},
	{"docs/guides/authentication.md", nil},
	{"docs/guides/several-clusters.md", nil},
	{"docs/guides/snapshots.md", nil},
	{"docs/guides/audit-and-encryption.md", []string{"vault"}},
	{"docs/start/stop-upgrade-remove.md", nil},
	{"docs/guides/testing-with-knarrtest.md", []string{"developer"}},
	{"docs/guides/join-a-machine.md", []string{"server", "worker", "clone"}},
}

// walkLimit is for a command that hangs. One command compiles a test of a whole server.
const walkLimit = 10 * time.Minute

// TestWalks runs every command of the pages above, in real clusters, as the pages print them. A
// command must succeed, unless the page says that it fails.
func TestWalks(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	shared := newWalk(t, folder, "laptop")
	for _, w := range walks {
		ok := t.Run(strings.TrimSuffix(filepath.Base(w.page), ".md"), func(t *testing.T) {
			if len(w.machines) > 0 {
				newWalk(t, folder, w.machines...).page(t, w.page)
				return
			}
			shared.page(t, w.page)
		})
		if !ok && len(w.machines) == 0 {
			t.Fatal("the pages after this one need its cluster")
		}
	}
}

// walk is the place where a page's commands run: one or more machines and a folder.
type walk struct {
	folder   string
	machines map[string]*walker
}

// walker is a machine with a shell that stays open, like a reader's.
type walker struct {
	space *space
	bin   string // folder with this machine's knarr
	stdin io.WriteCloser
	lines chan string
	shell *exec.Cmd
}

// place is a machine's name and the last byte of its address.
type place struct {
	name   string
	number int
}

// numbered gives the machines the addresses 1, 2, 3 ...
func numbered(names ...string) []place {
	var places []place
	for i, name := range names {
		places = append(places, place{name, i + 1})
	}
	return places
}

func newWalk(t *testing.T, folder string, names ...string) *walk {
	t.Helper()
	return newWalkIn(t, "192.168.88", folder, numbered(names...)...)
}

// newWalkIn creates machines in a network, such as 10.0.0, that share a folder of files. A prompt
// without a name is that of the first machine.
func newWalkIn(t *testing.T, network, folder string, places ...place) *walk {
	t.Helper()
	needs(t)
	w := &walk{folder: folder, machines: map[string]*walker{}}
	l := newLAN(t)
	for _, p := range places {
		w.machines[p.name] = newWalker(t, l, network, folder, p)
	}
	w.machines[""] = w.machines[places[0].name]
	return w
}

// newWalker creates a machine with its own network, mounts, processes and host name. /var/lib and
// /run are empty there, so that pages can use the default folders.
func newWalker(t *testing.T, l *lan, network, folder string, p place) *walker {
	t.Helper()
	w := &walker{space: newSpace(t, "--net", "--mount", "--pid", "--mount-proc", "--uts"), bin: t.TempDir(), lines: make(chan string, 100)}
	t.Cleanup(w.space.end)
	port := fmt.Sprintf("port%d", p.number)
	l.space.ip(t, fmt.Sprintf("link add %s type veth peer name uplink netns %d", port, w.space.pid))
	l.space.ip(t, "link set "+port+" master lan up")
	for _, line := range []string{
		"hostname " + p.name, "mount -t tmpfs tmpfs /var/lib", "mount -t tmpfs tmpfs /run", "ip link set lo up",
		fmt.Sprintf("ip addr add %s.%d/24 dev uplink", network, p.number), "ip link set uplink up", "ip route add default via " + network + ".254",
	} {
		args := strings.Fields(line)
		if out, err := w.space.command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	w.install(t, fmt.Sprintf("/knarr-walk-%d-%s-%s", os.Getpid(), filepath.Base(folder), p.name))
	w.open(t, folder, filepath.Join(folder, ".home-"+p.name))
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := w.space.command("tail", "-n", "15", "/var/lib/knarr/knarr.log").Output()
			t.Logf("log of knarr on %s:\n%s", p.name, out)
		}
		if out, err := w.space.command(filepath.Join(w.bin, "knarr"), "purge", "--yes").CombinedOutput(); err != nil {
			t.Errorf("purge on %s: %v\n%s", p.name, err, out)
		}
	})
	return w
}

// install puts programs into the machine's path: a knarr whose pods have their cgroups apart from
// those of other clusters here, a kubectl, and a sudo for pages that use it.
func (w *walker) install(t *testing.T, cgroup string) {
	t.Helper()
	for name, script := range map[string]string{
		"knarr":   fmt.Sprintf("case \"$1\" in\nup|node|purge) exec %s \"$@\" --cgroup-root %s ;;\nesac\nexec %[1]s \"$@\"\n", binary, cgroup),
		"sudo":    "exec \"$@\"\n",
		"kubectl": "exec knarr kubectl \"$@\"\n",
	} {
		if err := os.WriteFile(filepath.Join(w.bin, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// open starts the shell in the folder of files.
func (w *walker) open(t *testing.T, folder, home string) {
	t.Helper()
	w.shell = w.space.command("bash", "--norc", "--noprofile")
	goenv := func(name string) string {
		out, err := exec.Command("go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		return name + "=" + strings.TrimSpace(string(out))
	}
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	// What programs leave in TMPDIR when the test kills them goes with the folder.
	w.shell.Env = append(os.Environ(), "REPOSITORY="+repository, "HOME="+home, "TMPDIR="+folder, "PATH="+w.bin+":"+os.Getenv("PATH"), goenv("GOCACHE"), goenv("GOMODCACHE"), goenv("GOPATH"))
	if w.stdin, err = w.shell.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	w.shell.Stdout, w.shell.Stderr = in, in
	if err := w.shell.Start(); err != nil {
		t.Fatal(err)
	}
	_ = in.Close()
	// nsenter has changed the folder
	if _, err := fmt.Fprintf(w.stdin, "mkdir -p '%s'; cd '%s'; set -o pipefail\n", home, folder); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(w.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			w.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = w.stdin.Close()
		_ = w.shell.Process.Kill()
		_ = w.shell.Wait()
		_ = out.Close()
	})
}

// endMark is printed by the shell when a command has ended.
const endMark = "end of the step, status "

// run runs one command and returns its output and status.
func (w *walker) run(command string) (output []string, status string, err error) {
	if _, err := fmt.Fprintf(w.stdin, "{ %s\n} </dev/null\nstatus=$?; echo; echo \"%s$status\"\n", command, endMark); err != nil {
		return nil, "", err
	}
	limit := time.After(walkLimit)
	for {
		select {
		case line, ok := <-w.lines:
			if !ok {
				return output, "", fmt.Errorf("the shell has ended")
			}
			if status, ok := strings.CutPrefix(line, endMark); ok {
				if n := len(output); n > 0 && output[n-1] == "" {
					output = output[:n-1] // an empty line from the echo before the mark
				}
				return output, status, nil
			}
			output = append(output, line)
		case <-limit:
			return output, "", fmt.Errorf("no end after %s", walkLimit)
		}
	}
}

// page writes the page's files and runs its commands. With -walk.update it writes their output into
// the page.
func (w *walk) page(t *testing.T, name string) {
	const root = "../.."
	p, err := docs.ReadPage(root, name)
	if err != nil {
		t.Fatal(err)
	}
	replaced := map[int][]string{} // by the line of the step
	steps := map[int]docs.Step{}
	for _, b := range p.Blocks {
		if b.Has("skip") || b.RunBy() != "" {
			continue
		}
		if file, content, ok := b.File(); ok {
			w.write(t, file, content)
		}
		for _, s := range b.Steps() {
			output := w.step(t, p, &b, s)
			if b.Has("keep") {
				continue
			}
			steps[s.Line], replaced[s.Line] = s, output
			if !*updateWalks {
				compare(t, p, s, output)
			}
		}
	}
	if *updateWalks && !t.Failed() {
		update(t, filepath.Join(root, name), p, steps, replaced)
	}
}

var (
	suffix = regexp.MustCompile(`-[a-z0-9]{5,10}(-[a-z0-9]{5})?$`) // of a pod's name
	digits = regexp.MustCompile(`[0-9]+`)
	age    = regexp.MustCompile(`^([0-9]+[smhd])+$`)
	secret = regexp.MustCompile(`^\S{60,}$`)
)

// firstWords returns the first words of the lines, without the parts that differ from run to run.
func firstWords(lines []string) map[string]bool {
	words := map[string]bool{}
	for _, line := range lines {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || secret.MatchString(fields[0]):
		case age.MatchString(fields[0]):
			words["AGE"] = true
		default:
			words[digits.ReplaceAllString(suffix.ReplaceAllString(fields[0], ""), "0")] = true
		}
	}
	return words
}

// compare finds lines of a page that the command no longer prints. It compares the first word of
// each line, since times, names and numbers differ. A fast machine may not print a line that begins
// with "Waiting".
func compare(t *testing.T, p *docs.Page, s docs.Step, output []string) {
	t.Helper()
	if word, ok := missing(s, output); ok {
		t.Errorf("%s:%d: %s prints no line that begins with %q any more:\n%s\ngo test ./test/e2e -run Walks -walk.update writes the page",
			p.Path, s.Line, s.Command, word, strings.Join(output, "\n"))
	}
}

// missing returns the first word of a line that the page shows and the output lacks.
func missing(s docs.Step, output []string) (string, bool) {
	got := firstWords(output)
	for word := range firstWords(s.Output) {
		if !got[word] && word != "Waiting" {
			return word, true
		}
	}
	return "", false
}

func (w *walk) write(t *testing.T, file, content string) {
	t.Helper()
	path := filepath.Join(w.folder, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// brokenPipe is the status of a pipe whose last command, such as head, has read enough.
const brokenPipe = "141"

// step runs a command. The block's directive can say that it fails, that it is repeated until it
// succeeds, or that it runs in the background until the shell's end or a `kill %1`.
func (w *walk) step(t *testing.T, p *docs.Page, b *docs.Block, s docs.Step) []string {
	t.Helper()
	m := w.machines[s.Machine]
	if m == nil {
		t.Fatalf("%s:%d: no machine %q", p.Path, s.Line, s.Machine)
	}
	deadline := time.Now().Add(walkLimit)
	if b.Has("background") {
		return m.background(t, p, s, deadline)
	}
	for {
		output, status, err := m.run(s.Command)
		if err != nil {
			t.Fatalf("%s:%d: %s: %v\n%s", p.Path, s.Line, s.Command, err, strings.Join(output, "\n"))
		}
		failed := status != "0" && status != brokenPipe
		wrong := failed != b.Has("fails")
		if !wrong {
			return output
		}
		if !b.Has("repeat") || time.Now().After(deadline) {
			t.Fatalf("%s:%d: %s: status %s\n%s", p.Path, s.Line, s.Command, status, strings.Join(output, "\n"))
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// background starts a command that does not end, and waits until it has printed what the page
// shows.
func (w *walker) background(t *testing.T, p *docs.Page, s docs.Step, deadline time.Time) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "output")
	if _, _, err := w.run(fmt.Sprintf("%s >'%s' 2>&1 &", s.Command, file)); err != nil {
		t.Fatalf("%s:%d: %s: %v", p.Path, s.Line, s.Command, err)
	}
	for {
		data, _ := os.ReadFile(file)
		output := strings.Split(strings.TrimSpace(string(data)), "\n")
		word, wrong := missing(s, output)
		if !wrong {
			return output
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s:%d: %s prints no line that begins with %q:\n%s", p.Path, s.Line, s.Command, word, data)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

var trailing = regexp.MustCompile(`[ \t]+$`)

// update writes the page with the output of the steps.
func update(t *testing.T, path string, p *docs.Page, steps map[int]docs.Step, replaced map[int][]string) {
	t.Helper()
	var out []string
	for line := 1; line <= len(p.Lines); line++ {
		s, ok := steps[line]
		if !ok {
			out = append(out, p.Lines[line-1])
			continue
		}
		for _, text := range slices.Concat(strings.Split(s.Prompt, "\n"), replaced[line]) {
			out = append(out, trailing.ReplaceAllString(s.Indent+text, ""))
		}
		line = s.Last
	}
	if err := os.WriteFile(path, []byte(strings.Join(out, "\n")+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}
