package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// crewBudget lets one pod of the crew be evicted at a time.
const crewBudget = `
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: crew}
spec: {minAvailable: 3, selector: {matchLabels: {app: crew}}}
`

// TestUpgradeOfNodes upgrades a server and two workers with running pods, twice. Without a drain,
// no container restarts. With a drain, the pods move and never fall below their
// PodDisruptionBudget. The second command is killed after the turn of a node and run again.
func TestUpgradeOfNodes(t *testing.T) {
	t.Parallel()
	f := &fleet{lan: newLAN(t), cluster: &cluster{newMachine(t, "server")}, own: true}
	f.ownProgram()
	f.startServer()
	f.addWorkers("east", "west")
	f.sailor = f.loadProgram("e2e/sailor:v1", "./sailor", f.workers...)
	f.apply(crew + "---" + crewBudget)
	f.kubectl("rollout", "status", "deployment/crew", "--timeout=60s")

	containers := f.containers()
	first := newerProgram(t, 1)
	f.upgrade(first, "--drain=false", "--max-unavailable", "2")
	f.checkContainers(containers)
	f.wantUpgraded(first)

	second := newerProgram(t, 2)
	budget := f.watchHealthy(3)
	f.killAfterTurn("east", second)
	f.eventually(time.Minute, "node east runs the new program", func() error {
		if out := f.upgrade(second, "--dry-run"); !strings.Contains(out, "done      node east runs it already, and is uncordoned") {
			return fmt.Errorf("the plan is\n%s", out)
		}
		return nil
	})
	if out := f.upgrade(second, "--drain", "--max-unavailable", "1"); !strings.Contains(out, "continuing the upgrade") || !strings.Contains(out, "node west: evicted default/crew-") {
		t.Errorf("the upgrade that goes on says\n%s", out)
	}
	budget()
	f.wantUpgraded(second)
	for name, now := range f.containers() {
		if was, ok := containers[name]; ok && was == now {
			t.Errorf("the container of pod %s was not moved by a drain", name)
		}
	}
	f.kubectl("rollout", "status", "deployment/crew", "--timeout=60s")
	f.checkServices(f.crewOfBoth())
}

// crewOfBoth returns the crew once both workers have pods of it.
func (f *fleet) crewOfBoth() map[string][]member {
	f.t.Helper()
	f.scale(8)
	f.scale(9)
	return f.crew()
}

// ownProgram gives the machine a knarr in a file of its own.
func (m *machine) ownProgram() {
	m.t.Helper()
	m.knarrProgram = filepath.Join(m.t.TempDir(), "knarr")
	if err := os.Link(binary, m.knarrProgram); err == nil {
		return
	}
	// The folder is on another file system.
	if out, err := exec.Command("cp", binary, m.knarrProgram).CombinedOutput(); err != nil {
		m.t.Fatalf("copy knarr: %v\n%s", err, out)
	}
}

// newerProgram returns a knarr that differs from the one under test only in the number of its
// release. It replaces the text in the file, which is quicker than to build it.
func newerProgram(t *testing.T, number int) string {
	t.Helper()
	data, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	const release = "v1.36.3+knarr"
	if !bytes.Contains(data, []byte(release+"0")) {
		t.Skip("needs bin/knarr of release ", release+"0")
	}
	path := filepath.Join(t.TempDir(), fmt.Sprintf("knarr%d", number))
	data = bytes.ReplaceAll(data, []byte(release+"0"), fmt.Appendf(nil, "%s%d", release, number))
	if err := os.WriteFile(path, data, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// upgrading returns the command `knarr upgrade` on the server.
func (f *fleet) upgrading(program string, flags ...string) *exec.Cmd {
	return f.inside(f.knarrProgram, append([]string{"upgrade", "--data-dir", f.dir, "--from", program}, flags...)...)
}

func (f *fleet) upgrade(program string, flags ...string) string {
	f.t.Helper()
	out, err := f.upgrading(program, flags...).CombinedOutput()
	if err != nil {
		logs := ""
		for _, w := range f.workers {
			logs += tail(w.log.String(), 5)
		}
		f.t.Fatalf("upgrade %s: %v\n%s\n%s", strings.Join(flags, " "), err, out, logs)
	}
	return string(out)
}

// wantUpgraded fails the test unless all machines run the program, and no node is cordoned.
func (f *fleet) wantUpgraded(program string) {
	f.t.Helper()
	if out := f.upgrade(program, "--dry-run"); strings.Count(out, "runs it already\n") != 3 {
		f.t.Errorf("not all machines are upgraded:\n%s", out)
	}
	if out := f.kubectl("get", "nodes", "-o", "jsonpath={.items[*].spec.unschedulable}{.items[*].metadata.annotations.knarr-project\\.github\\.io/upgrade-cordoned}"); out != "" {
		f.t.Errorf("nodes are cordoned: %s", out)
	}
	if out := f.kubectl("get", "--raw", "/knarr/v1/upgrade"); strings.Contains(out, `"order"`) {
		f.t.Errorf("the order is left: %s", out)
	}
}

// killAfterTurn upgrades with a drain, and kills the command when the node has its turn.
func (f *fleet) killAfterTurn(node, program string) {
	f.t.Helper()
	cmd := f.upgrading(program, "--drain", "--max-unavailable", "1")
	said := &output{}
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	turn := fmt.Sprintf(`"kind":"node","name":%q,"nonce"`, node)
	f.eventually(2*time.Minute, "node "+node+" has its turn", func() error {
		select {
		case <-ended:
			f.t.Fatalf("the upgrade has ended:\n%s", said)
		default:
		}
		if out, err := f.tryKubectl("", "get", "--raw", "/knarr/v1/upgrade"); err != nil || !strings.Contains(out, turn) {
			return fmt.Errorf("%w\n%s", err, said)
		}
		return nil
	})
	_ = cmd.Process.Signal(syscall.SIGKILL)
	<-ended
	if !strings.Contains(said.String(), "node "+node+": draining") {
		f.t.Errorf("the upgrade did not drain node %s:\n%s", node, said)
	}
}

// watchHealthy watches the pods of the crew until the returned function is called. It fails the
// test if fewer than least pods are Ready and not being deleted.
func (f *fleet) watchHealthy(least int) (end func()) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	changes := 0
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			changes += f.watchHealthyOnce(ctx, least) // the server restarts
			time.Sleep(20 * time.Millisecond)
		}
	}()
	end = func() {
		cancel()
		<-done
		f.t.Logf("%d changes of pods, with at least %d healthy ones", changes, least)
		if changes == 0 {
			f.t.Error("no pod has changed")
		}
	}
	f.t.Cleanup(cancel)
	return end
}

type healthyPod struct {
	Metadata struct{ Name, DeletionTimestamp, ResourceVersion string }
	Status   struct {
		Conditions []struct{ Type, Status string }
	}
}

func (p healthyPod) healthy() bool {
	for _, c := range p.Status.Conditions {
		if c.Type == "Ready" && c.Status == "True" {
			return p.Metadata.DeletionTimestamp == ""
		}
	}
	return false
}

// watchHealthyOnce lists the pods and watches them until the watch ends. It returns the number of
// changes.
func (f *fleet) watchHealthyOnce(ctx context.Context, least int) (changes int) {
	const path = "/api/v1/namespaces/default/pods?labelSelector=app%3Dcrew"
	out, err := f.tool(binary, "kubectl", "get", "--raw", path).Output()
	var list struct {
		Metadata struct{ ResourceVersion string }
		Items    []healthyPod
	}
	if err != nil || json.Unmarshal(out, &list) != nil {
		return 0
	}
	healthy := map[string]bool{}
	check := func(p healthyPod, gone bool) {
		healthy[p.Metadata.Name] = p.healthy() && !gone
	}
	count := func() {
		n := 0
		for _, ok := range healthy {
			if ok {
				n++
			}
		}
		if n < least {
			f.t.Errorf("%d pods are healthy, fewer than the budget's %d: %v", n, least, healthy)
		}
	}
	for _, p := range list.Items {
		check(p, false)
	}
	count()
	watch := f.tool(binary, "kubectl", "get", "--raw", path+"&watch=true&resourceVersion="+list.Metadata.ResourceVersion)
	stream, err := watch.StdoutPipe()
	if err != nil || watch.Start() != nil {
		return 0
	}
	stop := context.AfterFunc(ctx, func() { _ = watch.Process.Kill() })
	defer stop()
	defer func() { _, _ = io.Copy(io.Discard, stream); _ = watch.Wait() }()
	for events := json.NewDecoder(stream); ; changes++ {
		var e struct {
			Type   string
			Object healthyPod
		}
		if events.Decode(&e) != nil {
			return changes
		}
		if e.Object.Metadata.Name != "" {
			check(e.Object, e.Type == "DELETED")
			count()
		}
	}
}
