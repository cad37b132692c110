package e2e

import (
	"strings"
	"testing"
)

// hostile lists pods that try what a node must prevent, and one that does the same legitimately.
const hostile = `
apiVersion: v1
kind: Pod
metadata: {name: root}
spec:
  restartPolicy: Never
  containers:
  - {name: main, image: e2e/sailor:v1, args: [say, aye], securityContext: {runAsNonRoot: true}}
---
apiVersion: v1
kind: Pod
metadata: {name: thief}
spec:
  restartPolicy: Never
  initContainers:
  - {name: init, image: e2e/sailor:v1, args: [link, /etc/os-release, /data/vars], volumeMounts: [{name: data, mountPath: /data}]}
  containers:
  - name: main
    image: e2e/sailor:v1
    args: [env, STOLEN]
    env: [{name: STOLEN, valueFrom: {fileKeyRef: {volumeName: data, path: vars, key: ID}}}]
  volumes: [{name: data, emptyDir: {}}]
---
apiVersion: v1
kind: Pod
metadata: {name: honest}
spec:
  restartPolicy: Never
  initContainers:
  - {name: init, image: e2e/sailor:v1, args: [put, /data/vars, "SONG='heave ho'"], volumeMounts: [{name: data, mountPath: /data}]}
  containers:
  - name: main
    image: e2e/sailor:v1
    args: [env, SUNG]
    env: [{name: SUNG, valueFrom: {fileKeyRef: {volumeName: data, path: vars, key: SONG}}}]
  volumes: [{name: data, emptyDir: {}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: chart}
data: {course: north}
---
apiVersion: v1
kind: Pod
metadata: {name: mutineer}
spec:
  restartPolicy: Never
  containers:
  - {name: main, image: e2e/sailor:v1, args: [link, ../../../.., /chart/..2026], volumeMounts: [{name: chart, mountPath: /chart}]}
  volumes: [{name: chart, configMap: {name: chart}}]
`

// TestContainersAreIsolatedFromTheHost checks three protections. A container with runAsNonRoot does
// not run if its image names no user. An environment file is not read through a link that leaves
// its volume. The volume of a ConfigMap is read-only.
func TestContainersAreIsolatedFromTheHost(t *testing.T) {
	c := newCluster(t)
	c.up()
	c.loadProgram("e2e/sailor:v1", "./sailor")
	c.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=60s")
	c.apply(hostile)
	for pod, want := range map[string]string{
		"root":  "CreateContainerConfigError container has runAsNonRoot and image will run as root",
		"thief": "CreateContainerConfigError couldn't read env file \"vars\" of volume \"data\": it leads outside of the volume",
	} {
		waiting := ".status.containerStatuses[0].state.waiting"
		c.kubectl("wait", "--for=jsonpath={"+waiting+".reason}=CreateContainerConfigError", "pod/"+pod, "--timeout=60s")
		if got := c.kubectl("get", "pod", pod, "-o", "jsonpath={"+waiting+".reason} {"+waiting+".message}"); !strings.HasPrefix(got, want) {
			t.Errorf("pod %s waits for %q, want %q", pod, got, want)
		}
	}
	c.kubectl("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/honest", "--timeout=60s")
	if log := c.kubectl("logs", "honest", "-c", "main"); strings.TrimSpace(log) != "heave ho" {
		t.Errorf("the honest pod says %q", log)
	}
	c.kubectl("wait", "--for=jsonpath={.status.phase}=Failed", "pod/mutineer", "--timeout=60s")
	if log := c.kubectl("logs", "mutineer"); !strings.Contains(log, "read-only file system") {
		t.Errorf("the pod that writes to a ConfigMap's volume says %q", log)
	}
}
