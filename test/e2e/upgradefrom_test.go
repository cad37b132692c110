package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// voyage has objects of the kinds that an upgrade must keep: workloads, a custom resource in two
// versions, a Secret, a Lease, and objects that controllers make of them.
const voyage = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ships.e2e.knarr.test}
spec:
  group: e2e.knarr.test
  scope: Namespaced
  names: {plural: ships, singular: ship, kind: Ship}
  versions:
  - &version
    name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {oars: {type: integer, minimum: 1, default: 16}, name: {type: string}}}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
  - {<<: *version, name: v1, storage: false}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: crew}
spec:
  replicas: 3
  selector: {matchLabels: {app: crew}}
  template:
    metadata: {labels: {app: crew}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: sailor
        image: e2e/sailor:v1
        env: [{name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
        volumeMounts: [{name: orders, mountPath: /orders}]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
        livenessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
      volumes: [{name: orders, secret: {secretName: orders}}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: captain}
spec:
  serviceName: captain
  selector: {matchLabels: {app: captain}}
  template:
    metadata: {labels: {app: captain}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: sailor, image: e2e/sailor:v1, env: [{name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: launch}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: sailor, image: e2e/sailor:v1, args: [say, ahoy]}]}}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: watch}
spec:
  schedule: "0 0 1 1 *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: sailor, image: e2e/sailor:v1, args: [say, ahoy]}]}}}}
---
apiVersion: v1
kind: Service
metadata: {name: crew}
spec: {selector: {app: crew}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: captain}
spec: {clusterIP: None, selector: {app: captain}, ports: [{port: 8080}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: crew}
spec: {minAvailable: 2, selector: {matchLabels: {app: crew}}}
---
apiVersion: v1
kind: Secret
metadata: {name: orders}
stringData: {course: west}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: beat}
---
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: helm}
spec: {holderIdentity: captain, leaseDurationSeconds: 15}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: crew}
spec: {podSelector: {matchLabels: {app: crew}}, ingress: [{}]}
`

const ships = `
apiVersion: e2e.knarr.test/v1alpha1
kind: Ship
metadata: {name: longship, finalizers: [e2e.knarr.test/anchor]}
spec: {name: Oseberg}
---
apiVersion: e2e.knarr.test/v1alpha1
kind: Ship
metadata: {name: knarr}
spec: {name: Skuldelev, oars: 4}
`

// TestUpgradeFromAnotherBuild upgrades a cluster of one machine from the program KNARR_UPGRADE_FROM
// to the one under test, by hand, as docs/operations/upgrade.md says for programs from before
// `knarr upgrade`. Then it goes back, with the objects. test/upgrade/run.sh builds both.
func TestUpgradeFromAnotherBuild(t *testing.T) {
	older := os.Getenv("KNARR_UPGRADE_FROM")
	if older == "" {
		t.Skip("make upgrade-from builds another program and sets KNARR_UPGRADE_FROM")
	}
	c := newCluster(t)
	c.knarrProgram, c.withoutAnyDisk = older, true
	c.up()
	sailor := c.buildProgram("./sailor")
	if out, err := c.inside(older, "image", "build", "--data-dir", c.dir, "--tag", "e2e/sailor:v1", sailor).CombinedOutput(); err != nil {
		t.Fatalf("image build: %v\n%s", err, out)
	}
	c.sail()
	objects, containers := c.objects(), c.containers()
	t.Logf("%d objects, %d containers in %s", len(objects), len(containers), version(t, older))

	w := c.writeAllTheTime()
	w.await(5)
	down := time.Now()
	c.stop(syscall.SIGTERM)
	c.knarrProgram, c.withoutAnyDisk = "", false
	c.up()
	ready := time.Now()
	w.await(w.count() + 5)
	w.end()
	w.check(down, ready)
	c.checkKept(objects, c.objects())
	c.checkContainers(containers)
	c.checkWorks()
	if got := c.kubectl("get", "configmap", "beat", "-o", "jsonpath={.metadata.annotations.number}"); got != strconv.Itoa(w.last) {
		t.Errorf("the last write is %s, want %d", got, w.last)
	}

	// The way back: the data of before the upgrade, and the older program by hand.
	c.kubectl("create", "configmap", "afterthought")
	c.stop(syscall.SIGTERM)
	out, err := c.inside(binary, "rollback", "--data-dir", c.dir, "--yes").CombinedOutput()
	if err != nil {
		t.Fatalf("rollback: %v\n%s", err, out)
	}
	t.Logf("rollback:\n%s", out)
	c.knarrProgram, c.withoutAnyDisk = older, true
	c.up()
	c.checkKept(objects, c.objects())
	if out, err := c.tryKubectl("", "get", "configmap", "afterthought"); err == nil {
		t.Errorf("an object from after the upgrade is there after the rollback: %s", out)
	}
	c.kubectl("rollout", "status", "deployment/crew", "--timeout=60s")
}

func version(t *testing.T, program string) string {
	t.Helper()
	out, err := exec.Command(program, "version").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(out)), " ")
}

// sail creates the objects and waits until their pods run.
func (c *cluster) sail() {
	c.t.Helper()
	c.apply(voyage)
	c.kubectl("wait", "--for=condition=Established", "crd/ships.e2e.knarr.test", "--timeout=60s")
	c.apply(ships)
	c.kubectl("patch", "ship", "knarr", "--subresource=status", "--type=merge", "-p", `{"status":{"afloat":true}}`)
	for _, what := range []string{"deployment/crew", "statefulset/captain"} {
		c.kubectl("rollout", "status", what, "--timeout=60s")
	}
	c.kubectl("wait", "--for=condition=Complete", "job/launch", "--timeout=60s")
}

// object is an object without what controllers may change at any time.
type object struct {
	uid, kind string
	content   string // of a Secret, a ConfigMap or a Ship
}

// objects returns all objects of the cluster by kind, namespace and name, except Events.
func (c *cluster) objects() map[string]object {
	c.t.Helper()
	kinds := strings.Fields(c.kubectl("api-resources", "--verbs=list,get", "-o", "name"))
	kinds = slices.DeleteFunc(kinds, func(k string) bool { return strings.HasPrefix(k, "events") })
	var list struct {
		Items []struct {
			Kind     string
			Metadata struct{ Namespace, Name, UID string }
			Data     json.RawMessage
			Spec     json.RawMessage
			Status   json.RawMessage
		}
	}
	// Only the standard output: there are warnings of deprecated kinds.
	out, err := c.tool(binary, "kubectl", "get", strings.Join(kinds, ","), "-A", "-o", "json").Output()
	if err == nil {
		err = json.Unmarshal(out, &list)
	}
	if err != nil {
		c.t.Fatalf("get all objects: %v", err)
	}
	found := map[string]object{}
	for _, i := range list.Items {
		o := object{uid: i.Metadata.UID, kind: i.Kind}
		switch i.Kind {
		case "Secret", "ConfigMap", "Ship":
			o.content = string(i.Data) + string(i.Spec)
		}
		if i.Kind == "Ship" {
			o.content += string(i.Status)
		}
		found[fmt.Sprintf("%s %s/%s", i.Kind, i.Metadata.Namespace, i.Metadata.Name)] = o
	}
	return found
}

// retired are objects that a newer version removes: nodes read all pods by them.
var retired = []string{"ClusterRole /knarr:node", "ClusterRoleBinding /knarr:node"}

// checkKept fails the test if objects are lost, were made anew, or have other content.
func (c *cluster) checkKept(before, after map[string]object) {
	c.t.Helper()
	for name, o := range before {
		switch now, ok := after[name]; {
		case !ok && !slices.Contains(retired, name):
			c.t.Errorf("%s is lost", name)
		case !ok:
		case now.uid != o.uid:
			c.t.Errorf("%s was made anew", name)
		case now.content != o.content:
			c.t.Errorf("%s is %s, was %s", name, now.content, o.content)
		}
	}
}

// container is a started container with its process's start.
type container struct{ id, restarts string }

// containers returns the containers of all pods by pod and name.
func (c *cluster) containers() map[string]container {
	c.t.Helper()
	out := c.kubectl("get", "pods", "-A", "-o", `jsonpath={range .items[*]}{.metadata.uid} {range .status.containerStatuses[*]}{.name} {.containerID} {.restartCount} {end}{"\n"}{end}`)
	found := map[string]container{}
	for line := range strings.Lines(out) {
		for f := strings.Fields(line)[1:]; len(f) >= 3; f = f[3:] {
			found[strings.Fields(line)[0]+" "+f[0]] = container{f[1], f[2]}
		}
	}
	return found
}

// checkContainers fails the test if one of the containers has been restarted or replaced.
func (c *cluster) checkContainers(before map[string]container) {
	c.t.Helper()
	after := c.containers()
	for name, was := range before {
		if now := after[name]; now != was {
			c.t.Errorf("the container of pod %s is %+v, was %+v", name, now, was)
		}
	}
}

// checkWorks uses the cluster: an old pod answers, a new one starts, and objects change and go.
func (c *cluster) checkWorks() {
	c.t.Helper()
	if out := c.kubectl("exec", "deployment/crew", "--", "/sailor", "head", "/orders/course", "4"); !strings.Contains(out, "west") {
		c.t.Errorf("the Secret in a pod from before the upgrade: %q", out)
	}
	c.kubectl("logs", "job/launch")
	c.kubectl("scale", "deployment/crew", "--replicas=4")
	c.kubectl("rollout", "status", "deployment/crew", "--timeout=60s")
	address := c.kubectl("get", "service", "crew", "-o", "jsonpath={.spec.clusterIP}")
	c.kubectl("exec", "captain-0", "--", "/sailor", "fetch", "http://"+address, "5")
	c.kubectl("delete", "pod", "captain-0")
	c.kubectl("rollout", "status", "statefulset/captain", "--timeout=60s")
	for _, v := range []string{"v1alpha1", "v1"} {
		if out := c.kubectl("get", "ships."+v+".e2e.knarr.test", "longship", "-o", "jsonpath={.spec.oars}"); out != "16" {
			c.t.Errorf("the defaulted field of a custom resource in %s: %q", v, out)
		}
	}
	c.kubectl("patch", "ship", "longship", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	c.kubectl("delete", "ship", "longship")
}

// writer writes all the time, and records which writes failed.
type writer struct {
	t      *testing.T
	cmd    *exec.Cmd
	file   string
	stop   string
	last   int // number of the last write that succeeded
	failed int
}

// writeAllTheTime annotates ConfigMap beat with 1, 2, 3 ... until end.
func (c *cluster) writeAllTheTime() *writer {
	c.t.Helper()
	dir := c.t.TempDir()
	w := &writer{t: c.t, file: filepath.Join(dir, "writes"), stop: filepath.Join(dir, "stop")}
	const script = `n=0; until [ -e "$3" ]; do n=$((n+1)); from=$(date +%s%N)
if "$1" kubectl annotate configmap beat --overwrite "number=$n" >/dev/null 2>>"$2.err"; then how=ok; else how=FAILED; fi
echo "$n $from $(date +%s%N) $how" >>"$2"; done`
	w.cmd = c.tool("bash", "-c", script, "bash", binary, w.file, w.stop)
	if err := w.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(w.end)
	return w
}

func (w *writer) count() int {
	data, _ := os.ReadFile(w.file)
	return strings.Count(string(data), " ok\n")
}

// await waits for n successful writes.
func (w *writer) await(n int) {
	w.t.Helper()
	for deadline := time.Now().Add(time.Minute); w.count() < n; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.t.Fatalf("%d writes have succeeded, want %d", w.count(), n)
		}
	}
}

func (w *writer) end() {
	if w.cmd == nil {
		return
	}
	_ = os.WriteFile(w.stop, nil, 0o600)
	_ = w.cmd.Wait()
	w.cmd = nil
}

// check fails the test if a write failed that did not overlap the time in which the only server
// restarted. Equal times mean that no write may fail.
func (w *writer) check(down, ready time.Time) {
	w.t.Helper()
	f, err := os.Open(w.file)
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var n int
		var from, to int64
		var how string
		if _, err := fmt.Sscan(lines.Text(), &n, &from, &to, &how); err != nil {
			w.t.Fatalf("%q: %v", lines.Text(), err)
		}
		if how == "ok" {
			w.last = n
			continue
		}
		w.failed++
		if to < down.UnixNano() || from > ready.UnixNano() {
			messages, _ := os.ReadFile(w.file + ".err")
			w.t.Errorf("write %d failed while the server was not restarting:\n%s", n, tail(string(messages), 5))
		}
	}
	w.t.Logf("%d writes succeeded and %d failed, with %.1f s from the stop to ready", w.count(), w.failed, ready.Sub(down).Seconds())
}
