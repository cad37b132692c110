package e2e

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

// whySituations are pods that cannot run, each with its root cause. The first %s is the name.
var whySituations = []struct{ name, cause, spec string }{
	{"crashes", "container-crash", `containers: [{name: c, image: "harbour/store:v1", env: [{name: DATA_DIR, value: /proc/none}]}]`},
	{"command", "container-command-not-found", `containers: [{name: c, image: "harbour/store:v1", command: [/no/such/program]}]`},
	{"permission", "container-permission", `containers: [{name: c, image: "harbour/store:v1", command: [/etc/settings/plain], volumeMounts: [{name: s, mountPath: /etc/settings}]}]
  volumes: [{name: s, configMap: {name: settings}}]`},
	{"never", "image-never-pulled", `containers: [{name: c, image: "harbour/none:v1", imagePullPolicy: Never}]`},
	{"name", "image-bad-name", `containers: [{name: c, image: "Harbour//store:v1"}]`},
	{"registry", "image-registry-unreachable", `containers: [{name: c, image: "127.0.0.1:1/none:v1"}]`},
	{"config", "configmap-missing", `containers: [{name: c, image: "harbour/store:v1", envFrom: [{configMapRef: {name: none}}]}]`},
	{"volume", "secret-missing", `containers: [{name: c, image: "harbour/store:v1"}]
  volumes: [{name: s, secret: {secretName: none}}]`},
	{"path", "volume-host-path", `containers: [{name: c, image: "harbour/store:v1"}]
  volumes: [{name: s, hostPath: {path: /no/such/folder, type: Directory}}]`},
	{"root", "container-run-as-non-root", `containers: [{name: c, image: "harbour/store:v1", securityContext: {runAsNonRoot: true}}]`},
	{"liveness", "container-liveness-probe", `terminationGracePeriodSeconds: 1
  containers: [{name: c, image: "harbour/store:v1", env: [{name: DATA_DIR, value: /tmp}], livenessProbe: {httpGet: {path: /healthz, port: 1}, periodSeconds: 1, failureThreshold: 1}}]`},
	{"readiness", "container-readiness-probe", `containers: [{name: c, image: "harbour/store:v1", env: [{name: DATA_DIR, value: /data}], readinessProbe: {httpGet: {path: /healthz, port: 1}, periodSeconds: 1}, volumeMounts: [{name: d, mountPath: /data}]}]
  volumes: [{name: d, emptyDir: {}}]`},
}

// TestWhyNamesTheCausesOfRealContainers lets containers fail for real, and asks why.
func TestWhyNamesTheCausesOfRealContainers(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.up()
	c.loadProgram("harbour/store:v1", "../../examples/harbour/store")
	c.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {plain: no program}\n")
	for _, s := range whySituations {
		c.apply("apiVersion: v1\nkind: Pod\nmetadata: {name: " + s.name + "}\nspec:\n  " + s.spec + "\n")
	}
	named := 0
	for _, s := range whySituations {
		got, text := "", ""
		for end := time.Now().Add(time.Minute); got != s.cause && time.Now().Before(end); time.Sleep(200 * time.Millisecond) {
			got, text = c.why("pod/" + s.name)
		}
		if got == s.cause {
			named++
			continue
		}
		t.Errorf("pod/%s: the root cause is %s, not %s:\n%s", s.name, s.cause, got, text)
	}
	t.Logf("named: %d of %d root causes", named, len(whySituations))
	out, _ := c.tool(binary, "why", "pod/crashes", "--kubeconfig", c.kubeconfig()).CombinedOutput()
	if !strings.Contains(string(out), "the end of its log:") {
		t.Errorf("the last lines of the log are missing:\n%s", out)
	}
}

// why returns the first root cause of an object, and the whole answer.
func (c *cluster) why(object string) (cause, text string) {
	out, _ := c.tool(binary, "why", object, "-o", "json", "--kubeconfig", c.kubeconfig()).CombinedOutput()
	var answer struct {
		RootCauses []struct{ Cause string }
	}
	if err := json.Unmarshal(out, &answer); err != nil || len(answer.RootCauses) == 0 {
		return "nothing", string(out)
	}
	return answer.RootCauses[0].Cause, string(out)
}
