package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"
)

const onePod = `
apiVersion: v1
kind: Pod
metadata: {name: store}
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: store
    image: harbour/store:v1
    env: [{name: DATA_DIR, value: /data}]
    readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, emptyDir: {}}]
`

// TestOnePodFromApplyToItsLog is the thinnest path through all components: kubectl, API server,
// store, scheduler, kubelet, container, probe, log, deletion.
func TestOnePodFromApplyToItsLog(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.up()
	c.loadProgram("harbour/store:v1", "../../examples/harbour/store")
	c.apply(onePod)
	c.kubectl("wait", "--for=condition=Ready", "pod/store", "--timeout=60s")
	if log := c.kubectl("logs", "store"); !strings.Contains(log, "listening on :8080") {
		t.Errorf("the log is %q", log)
	}
	summary := c.kubectl("get", "--raw", "/api/v1/nodes/one/proxy/stats/summary")
	for _, name := range []string{"kubelet", "runtime"} {
		if !strings.Contains(summary, `"name": "`+name+`"`) && !strings.Contains(summary, `"name":"`+name+`"`) {
			t.Errorf("the node's summary does not tell of the process %s: %s", name, summary)
		}
	}
	c.kubectl("delete", "pod", "store", "--timeout=60s")
	if out, err := c.tryKubectl("", "get", "pod", "store"); err == nil || !strings.Contains(out, `pods "store" not found`) {
		t.Errorf("after the deletion: %s", out)
	}
}

// TestPodsSurviveARestart kills knarr with SIGKILL. That must neither stop nor restart containers,
// and the next knarr adopts them.
func TestPodsSurviveARestart(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.up()
	c.loadProgram("harbour/store:v1", "../../examples/harbour/store")
	c.apply(onePod)
	c.kubectl("wait", "--for=condition=Ready", "pod/store", "--timeout=60s")
	id := func() string {
		return c.kubectl("get", "pod", "store", "-o", "jsonpath={.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}")
	}
	before := id()
	for i, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		c.stop(signal)
		c.up()
		c.kubectl("wait", "--for=condition=Ready", "pod/store", "--timeout=60s")
		if after := id(); after != before {
			t.Errorf("restart %d: the container was %q, is %q", i, before, after)
		}
	}
	c.apply(strings.ReplaceAll(onePod, "name: store}", "name: second}"))
	c.kubectl("wait", "--for=condition=Ready", "pod/second", "--timeout=60s")
}

// TestTheSampleAnswersThroughItsService deploys the harbour as users do.
func TestTheSampleAnswersThroughItsService(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.up()
	for _, part := range []string{"store", "api", "web"} {
		c.loadProgram("harbour/"+part+":v1", "../../examples/harbour/"+part)
	}
	c.kubectl("apply", "-f", "../../examples/harbour/harbour.yaml")
	for _, workload := range []string{"statefulset/store", "deployment/api", "deployment/web"} {
		c.kubectl("-n", "harbour", "rollout", "status", workload, "--timeout=60s")
	}
	address := c.kubectl("-n", "harbour", "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
	c.eventually(time.Minute, "the sample answers", func() error { return c.post("http://"+address+"/arrivals", `{"ship":"Fram"}`) })
	if body, err := c.get("http://" + address + "/arrivals"); err != nil || !strings.Contains(body, `"ship":"Fram"`) {
		t.Errorf("read back: %q, %v", body, err)
	}
	node := c.kubectl("get", "nodes", "-o", `jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}`)
	if body, err := c.get("http://" + node + ":30080/"); err != nil || !strings.Contains(body, "<h1>Harbour</h1>") {
		t.Errorf("the node port answers with %q, %v", body, err)
	}
}
