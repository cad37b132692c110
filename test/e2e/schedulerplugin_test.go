package e2e

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// portNode is a node without an agent.
func portNode(name string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Node\nmetadata: {name: %s}\nstatus: {capacity: {cpu: 64, memory: 64Gi, pods: 1000}, "+
		"allocatable: {cpu: 64, memory: 64Gi, pods: 1000}, conditions: [{type: Ready, status: 'True'}]}\n", name)
}

// plugins are the modules of a test with scheduler plugins. Their content has another digest each.
type plugins struct {
	*cluster
	digests map[string]string
}

// buildPlugins builds the harbourmaster once for each verdict, into the server's folder. The module
// broken is none.
func (c *cluster) buildPlugins(verdicts ...string) *plugins {
	c.t.Helper()
	folder := filepath.Join(c.dir, "scheduler-plugins")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		c.t.Fatal(err)
	}
	p := &plugins{c, map[string]string{}}
	for _, verdict := range append(verdicts, "broken") {
		file := filepath.Join(folder, verdict+".wasm")
		if verdict == "broken" {
			if err := os.WriteFile(file, []byte("no module"), 0o644); err != nil {
				c.t.Fatal(err)
			}
		} else {
			build := exec.Command("go", "build", "-trimpath", "-buildmode=c-shared", "-ldflags", "-s -w -X main.does="+verdict, "-o", file, "./harbourmaster")
			build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
			if out, err := build.CombinedOutput(); err != nil {
				c.t.Fatalf("build the plugin %s: %v\n%s", verdict, err, out)
			}
		}
		content, err := os.ReadFile(file)
		if err != nil {
			c.t.Fatal(err)
		}
		p.digests[verdict] = fmt.Sprintf("%x", sha256.Sum256(content))
	}
	return p
}

// use replaces the module of the plugin, and waits for a condition of the new spec.
func (p *plugins) use(verdict, condition, status, reason string) {
	p.t.Helper()
	p.apply(fmt.Sprintf("apiVersion: scheduling.knarr.io/v1alpha1\nkind: SchedulerPlugin\nmetadata: {name: harbourmaster}\n"+
		"spec: {source: {file: %s.wasm}, sha256: %q, limits: {deadlineMilliseconds: 50}}\n", verdict, p.digests[verdict]))
	p.awaitCondition(verdict, condition, status, reason)
}

// awaitCondition waits for a condition of the newest spec.
func (p *plugins) awaitCondition(verdict, condition, status, reason string) {
	p.t.Helper()
	p.eventually(time.Minute, fmt.Sprintf("%s: condition %s is %s", verdict, condition, status), func() error {
		var u struct {
			Metadata struct{ Generation int64 }
			Status   struct {
				Conditions []struct {
					Type, Status, Reason, Message string
					ObservedGeneration            int64
				}
			}
		}
		out := p.kubectl("get", "schedulerplugin", "harbourmaster", "-o", "json")
		if err := json.Unmarshal([]byte(out), &u); err != nil {
			return err
		}
		for _, c := range u.Status.Conditions {
			if c.Type == condition && c.Status == status && c.Reason == reason && c.ObservedGeneration == u.Metadata.Generation {
				return nil
			}
		}
		return fmt.Errorf("%+v", u.Status.Conditions)
	})
}

// cargo is a pod that waits on any node, also on one that does not report.
func cargo(name string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {tolerations: [{operator: Exists}], containers: [{name: c, image: e2e/none}]}\n", name)
}

// probe creates a pod and returns its node.
func (p *plugins) probe(name string) (node string) {
	p.t.Helper()
	p.apply(cargo(name))
	p.eventually(time.Minute, "pod "+name+" is bound", func() error {
		if node = p.kubectl("get", "pod", name, "-o", "jsonpath={.spec.nodeName}"); node == "" {
			return errors.New(p.kubectl("get", "pod", name, "-o", "jsonpath={.status.conditions}"))
		}
		return nil
	})
	return node
}

// bindings follows pods, and has the nodes on which each pod was seen, in their order.
type bindings struct {
	cmd   *exec.Cmd
	done  chan error
	nodes map[string][]string
}

func (c *cluster) watchBindings() *bindings {
	c.t.Helper()
	b := &bindings{cmd: c.tool(binary, "kubectl", "get", "pods", "--watch", "--output-watch-events", "-o", "json"), done: make(chan error, 1), nodes: map[string][]string{}}
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := b.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	go func() { b.done <- b.read(out) }()
	c.t.Cleanup(func() {
		_ = b.cmd.Process.Kill()
		_ = b.cmd.Wait()
	})
	return b
}

// read ends when it has seen a deletion of the pod named last.
func (b *bindings) read(from io.Reader) error {
	for d := json.NewDecoder(from); ; {
		var e struct {
			Type   string
			Object struct {
				Metadata struct{ Name, UID string }
				Spec     struct{ NodeName string }
			}
		}
		if err := d.Decode(&e); err != nil {
			return fmt.Errorf("read the watch: %w", err)
		}
		name, node := e.Object.Metadata.Name, e.Object.Spec.NodeName
		if e.Type == "DELETED" && name == "last" {
			return nil
		}
		seen := b.nodes[name]
		if node != "" && (len(seen) == 0 || seen[len(seen)-1] != node) || node == "" && len(seen) > 0 {
			b.nodes[name] = append(seen, node)
		}
	}
}

// TestASchedulerPluginIsSwappedUnderLoad replaces a plugin while pods are created: by another one,
// by a file without a module, by plugins that fail, and by none. Each pod is bound once. The nodes
// have no agents, since only bindings count.
func TestASchedulerPluginIsSwappedUnderLoad(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	p := c.buildPlugins("east", "west", "loop", "trap")
	c.start("server")
	c.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=60s")
	c.kubectl("wait", "--for=condition=Established", "crd/schedulerplugins.scheduling.knarr.io", "--timeout=60s")
	c.apply(portNode("east") + portNode("west"))
	p.use("east", "Loaded", "True", "Loaded")
	b := c.watchBindings()

	const batches, each = 12, 20
	loaded := make(chan error, 1)
	go func() {
		for batch := range batches {
			var pods strings.Builder
			for i := range each {
				pods.WriteString(cargo(fmt.Sprintf("load-%d-%d", batch, i)))
			}
			if out, err := c.tryKubectl(pods.String(), "create", "-f", "-"); err != nil {
				loaded <- fmt.Errorf("create pods: %w\n%s", err, out)
				return
			}
		}
		loaded <- nil
	}()
	total := batches * each
	sees := func(name, want string) {
		t.Helper()
		total++
		if node := p.probe(name); node != want {
			t.Errorf("pod %s is on node %s, want %s", name, node, want)
		}
	}
	sees("first", "east")
	p.use("west", "Loaded", "True", "Loaded")
	sees("second", "west")
	p.use("east", "Loaded", "True", "Loaded")
	sees("third", "east")
	p.use("broken", "Loaded", "False", "InvalidModule")
	sees("fourth", "east")
	for verdict, says := range map[string]string{"loop": "exceeded its deadline of 50ms", "trap": "the harbour is closed"} {
		p.use(verdict, "Loaded", "True", "Loaded")
		for i := range 6 {
			c.apply(cargo(fmt.Sprintf("%s-%d", verdict, i)))
			total++
		}
		p.awaitCondition(verdict, "Working", "False", "Suspended")
		for reason, kind := range map[string]string{"Failed": "SchedulerPlugin", "SchedulerPluginFailed": "Pod"} {
			c.eventually(time.Minute, "an event of a "+kind+" tells of "+verdict, func() error {
				if out := c.kubectl("get", "events", "-A", "--field-selector", "type=Warning,reason="+reason+",involvedObject.kind="+kind, "-o", "jsonpath={.items[*].message}"); !strings.Contains(out, says) {
					return errors.New(tail(out, 5))
				}
				return nil
			})
		}
	}
	p.use("west", "Loaded", "True", "Loaded")
	sees("last", "west")
	if err := <-loaded; err != nil {
		t.Fatal(err)
	}
	c.kubectl("delete", "schedulerplugin", "harbourmaster")
	total++
	p.probe("free")

	c.eventually(time.Minute, "all pods are bound", func() error {
		if out := c.kubectl("get", "pods", "--field-selector", "spec.nodeName=", "-o", "name"); out != "" {
			return errors.New(tail(out, 5))
		}
		return nil
	})
	if got := len(strings.Fields(c.kubectl("get", "pods", "-o", "name"))); got != total {
		t.Errorf("there are %d pods, want %d", got, total)
	}
	c.eventually(time.Minute, "there is one event of each binding", func() error {
		return c.checkBindingEvents(total)
	})
	c.kubectl("delete", "pod", "last", "--force", "--grace-period=0")
	if err := <-b.done; err != nil {
		t.Fatal(err)
	}
	if len(b.nodes) != total {
		t.Errorf("the watch has seen %d pods on nodes, want %d", len(b.nodes), total)
	}
	for name, nodes := range b.nodes {
		if len(nodes) != 1 {
			t.Errorf("pod %s was on the nodes %q", name, nodes)
		}
	}
}

// checkBindingEvents fails unless each pod has one event of its binding.
func (c *cluster) checkBindingEvents(pods int) error {
	count := map[string]int{}
	for pod := range strings.FieldsSeq(c.kubectl("get", "events", "--field-selector", "reason=Scheduled", "-o", "jsonpath={.items[*].involvedObject.name}")) {
		count[pod]++
	}
	for pod, n := range count {
		if n != 1 {
			return fmt.Errorf("pod %s has %d events of bindings", pod, n)
		}
	}
	if len(count) != pods {
		return fmt.Errorf("%d pods have an event of their binding, want %d", len(count), pods)
	}
	return nil
}
