package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// crew is a Deployment that is spread over the nodes, and leaves a silent node soon.
const crew = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: crew}
spec:
  replicas: 4
  selector: {matchLabels: {app: crew}}
  template:
    metadata: {labels: {app: crew}}
    spec:
      terminationGracePeriodSeconds: 1
      tolerations:
      - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
      - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, nodeTaintsPolicy: Honor, labelSelector: {matchLabels: {app: crew}}}
      containers:
      - name: sailor
        image: e2e/sailor:v1
        env: [{name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: crew}
spec:
  type: NodePort
  selector: {app: crew}
  ports: [{port: 80, targetPort: 8080, nodePort: 30088}]
---
apiVersion: v1
kind: Service
metadata: {name: muster}
spec: {clusterIP: None, selector: {app: crew}, ports: [{port: 8080}]}
`

// TestTwoWorkers runs a server and two workers on one switch. Pods and Services work across nodes.
// Pods of a dead node are replaced on the other one. A node that was cut off, or comes back after a
// power failure, works again.
func TestTwoWorkers(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "--node-monitor-grace-period", "20s") // long enough for a busy machine
	f.addWorkers("east", "west")
	f.sailor = f.loadProgram("e2e/sailor:v1", "./sailor", f.workers...)
	f.apply(crew)
	f.kubectl("rollout", "status", "deployment/crew", "--timeout=60s")
	before := f.crew()
	for _, w := range f.workers {
		if n := len(before[w.name]); n != 2 {
			t.Fatalf("node %s has %d pods of %v, wanted 2", w.name, n, before)
		}
		w.wantParts(w.knarr(0, "status", "--data-dir", w.dir), "worker (knarr node)", w.name+" is Ready", "2 running")
		w.wantParts(w.knarr(1, "token", "create", "--data-dir", w.dir), "it is a worker of https://")
	}
	f.checkServices(before)
	f.checkOverlay(before)

	east, west := f.workers[0], f.workers[1]
	t.Log("cut off", west.name)
	west.ip("link set uplink down")
	f.waitReady(west, "Unknown")
	f.waitAllOn(east)
	f.checkReachable(east)
	west.ip("link set uplink up")
	f.waitReady(west, "True")
	f.eventually(time.Minute, "the pods that left the node have ended there", func() error { return f.checkEnded(west, before[west.name]) })
	f.scale(8)
	f.checkServices(f.crew())

	t.Log("power failure of", east.name)
	before = f.crew()
	east.crash()
	f.waitReady(east, "Unknown")
	f.waitAllOn(west)
	f.plug(east)
	f.join(east)
	f.waitReady(east, "True")
	f.scale(4) // of the eight on the other node
	f.scale(8)
	f.checkServices(f.crew())
	f.checkOverlay(f.crew())
	if err := f.checkEnded(east, before[east.name]); err != nil {
		t.Error(err)
	}
}

// fleet is a server without a node, and workers.
type fleet struct {
	*cluster
	*lan
	workers []*machine
	sailor  string // path of the program
	token   string
	own     bool // each machine has a knarr in a file of its own
}

// newFleet starts the server with the flags.
func newFleet(t *testing.T, flags ...string) *fleet {
	t.Helper()
	f := &fleet{lan: newLAN(t), cluster: &cluster{newMachine(t, "server")}}
	f.startServer(flags...)
	return f
}

func (f *fleet) startServer(flags ...string) {
	f.t.Helper()
	f.plug(f.machine)
	f.start("server", append([]string{"--advertise-address", f.address(f.machine)}, flags...)...)
	f.readToken()
}

// readToken makes a token with which workers join.
func (f *fleet) readToken() {
	f.t.Helper()
	create := f.tool(binary, "token", "create", "--data-dir", f.dir, "--advertise-address", f.address(f.machine))
	var complaint strings.Builder
	create.Stderr = &complaint
	out, err := create.Output()
	if err != nil {
		f.t.Fatalf("token create: %v: %s", err, &complaint)
	}
	f.token = strings.TrimSpace(string(out))
}

// addWorkers joins workers with these names.
func (f *fleet) addWorkers(names ...string) {
	f.t.Helper()
	for _, name := range names {
		f.addWorker(name)
	}
}

func (f *fleet) addWorker(name string, flags ...string) {
	f.t.Helper()
	w := newMachine(f.t, name)
	f.workers = append(f.workers, w)
	if f.own {
		w.ownProgram()
	}
	f.plug(w)
	f.join(w, flags...)
}

func (f *fleet) join(w *machine, flags ...string) {
	f.t.Helper()
	w.start("node", append([]string{"--advertise-address", f.address(w), "--node-lease-duration", "4s", "--join", "https://" + f.address(f.machine) + ":6443", "--token", f.token}, flags...)...)
	f.waitReady(w, "True")
}

// waitReady waits for the status of the node's condition Ready. It also waits until a ready node
// accepts pods.
func (f *fleet) waitReady(w *machine, status string) {
	f.t.Helper()
	// knarr says ready before the node is registered
	f.kubectl("wait", "--for=create", "node/"+w.name, "--timeout=60s")
	f.kubectl("wait", "--for=condition=Ready="+status, "node/"+w.name, "--timeout=60s")
	if status != "True" {
		return
	}
	f.eventually(time.Minute, "the taints of "+w.name+" go when it is ready", func() error {
		if taints := f.kubectl("get", "node", w.name, "-o", "jsonpath={.spec.taints}"); taints != "" {
			return fmt.Errorf("it has %s", taints)
		}
		return nil
	})
}

func (f *fleet) scale(n int) {
	f.t.Helper()
	f.kubectl("scale", "deployment/crew", fmt.Sprintf("--replicas=%d", n))
	if out, err := f.tryKubectl("", "rollout", "status", "deployment/crew", "--timeout=60s"); err != nil {
		pods, _ := f.tryKubectl("", "get", "pods,nodes", "-o", "wide")
		about, _ := f.tryKubectl("", "describe", "pods")
		f.t.Fatalf("%v\n%s%s\n%s", err, out, pods, about)
	}
}

// member is a running pod of the crew.
type member struct{ name, ip string }

// crew returns the running pods of the crew by node.
func (f *fleet) crew() map[string][]member {
	f.t.Helper()
	out := f.kubectl("get", "pods", "-l", "app=crew", "-o",
		`jsonpath={range .items[?(@.status.phase=="Running")]}{.metadata.name} {.spec.nodeName} {.status.podIP} {.metadata.deletionTimestamp}{"\n"}{end}`)
	byNode := map[string][]member{}
	for line := range strings.Lines(out) {
		// A fourth field means that the pod is being deleted.
		if fields := strings.Fields(line); len(fields) == 3 {
			byNode[fields[1]] = append(byNode[fields[1]], member{fields[0], fields[2]})
		}
	}
	return byNode
}

// checkServices checks that every pod reaches every other pod by name, and every node by node port,
// on any node.
func (f *fleet) checkServices(crew map[string][]member) {
	f.t.Helper()
	var all []string
	for _, members := range crew {
		for _, m := range members {
			all = append(all, m.name)
		}
	}
	slices.Sort(all)
	answers := func(what string, fetch func() ([]byte, error)) {
		f.t.Helper()
		f.eventually(60*time.Second, what+" reaches all of "+fmt.Sprint(all), func() error {
			out, err := fetch()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			for _, name := range all {
				if !strings.Contains(string(out), name) {
					return fmt.Errorf("%s has not answered", name)
				}
			}
			return nil
		})
	}
	const calls = "60" // Services choose a pod at random
	address := f.kubectl("get", "service", "crew", "-o", "jsonpath={.spec.clusterIP}")
	for _, w := range f.workers {
		answers("the Service's address from node "+w.name, func() ([]byte, error) { return w.inside(f.sailor, "fetch", "http://"+address, calls).CombinedOutput() })
		answers("the node port of "+w.name+" from the server", func() ([]byte, error) {
			return f.inside(f.sailor, "fetch", "http://"+f.address(w)+":30088", calls).CombinedOutput()
		})
		pod := crew[w.name][0].name
		answers("the Service's name from a pod on "+w.name, func() ([]byte, error) {
			out, err := f.tryKubectl("", "exec", pod, "--", "/sailor", "fetch", "http://crew.default.svc.cluster.local", calls)
			return []byte(out), err
		})
		f.eventually(time.Minute, "a headless Service's name gives all pods' addresses on "+w.name, func() error {
			out, err := f.tryKubectl("", "exec", pod, "--", "/sailor", "lookup", "muster.default.svc.cluster.local")
			if err == nil && len(strings.Fields(out)) != len(all) {
				err = fmt.Errorf("got %q", out)
			}
			return err
		})
	}
}

// checkOverlay checks that traffic between pods of different nodes uses the VXLAN links of both.
func (f *fleet) checkOverlay(crew map[string][]member) {
	f.t.Helper()
	east, west := f.workers[0], f.workers[1]
	sent, received := f.overlayPackets(east)
	const calls = 5
	f.kubectl("exec", crew[east.name][0].name, "--", "/sailor", "fetch", "http://"+crew[west.name][0].ip+":8080", strconv.Itoa(calls))
	sentNow, receivedNow := f.overlayPackets(east)
	if sentNow-sent < calls || receivedNow-received < calls {
		f.t.Errorf("%d calls to another node's pod took %d packets out and %d in on the overlay", calls, sentNow-sent, receivedNow-received)
	}
}

func (f *fleet) overlayPackets(m *machine) (sent, received int) {
	f.t.Helper()
	out, err := m.inside("ip", "-j", "-s", "link", "show", "dev", "knarr.vxlan").Output()
	if err != nil {
		f.t.Fatalf("the overlay's link on %s: %v", m.name, err)
	}
	var links []struct {
		Stats64 struct {
			RX struct{ Packets int }
			TX struct{ Packets int }
		}
	}
	if err := json.Unmarshal(out, &links); err != nil || len(links) != 1 {
		f.t.Fatalf("ip -j link: %v\n%s", err, out)
	}
	return links[0].Stats64.TX.Packets, links[0].Stats64.RX.Packets
}

// waitAllOn waits until the whole crew is ready on one node.
func (f *fleet) waitAllOn(w *machine) {
	f.t.Helper()
	f.eventually(60*time.Second, "the crew is replaced on "+w.name, func() error {
		if out := f.kubectl("get", "deployment", "crew", "-o", "jsonpath={.status.readyReplicas}/{.spec.replicas}"); out[:1] != out[2:] {
			return fmt.Errorf("ready are %s", out)
		}
		if crew := f.crew(); len(crew) != 1 || len(crew[w.name]) == 0 {
			return fmt.Errorf("the crew is on %v", crew)
		}
		return nil
	})
}

// checkReachable checks that the Service answers every time from a node, although other nodes are
// gone.
func (f *fleet) checkReachable(w *machine) {
	f.t.Helper()
	address := f.kubectl("get", "service", "crew", "-o", "jsonpath={.spec.clusterIP}")
	if out, err := w.inside(f.sailor, "fetch", "http://"+address, "20").CombinedOutput(); err != nil {
		f.t.Errorf("the Service does not answer on %s: %v %s", w.name, err, out)
	}
}

// checkEnded returns an error if a container of these pods still runs on the machine.
func (f *fleet) checkEnded(w *machine, members []member) error {
	for _, m := range members {
		if out, err := f.tryKubectl("", "get", "pod", m.name); err == nil {
			return fmt.Errorf("the pod is still there: %s", out)
		}
	}
	crew := f.crew()[w.name]
	running := 0
	for _, pid := range w.processes() {
		if syscall.Kill(pid, 0) == nil && commandLine(pid) == "/sailor" {
			running++
		}
	}
	if running > len(crew) {
		return fmt.Errorf("%d containers run on %s for %d pods", running, w.name, len(crew))
	}
	return nil
}
