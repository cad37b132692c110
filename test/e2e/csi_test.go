package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// csiDriver is the manifest of a CSI driver. The first argument is the node agent's folder, the
// second the folder of the driver's volumes.
const csiDriver = `apiVersion: v1
kind: ServiceAccount
metadata: {name: disk}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: disk}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: disk, namespace: default}]
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: disk.example.com}
spec:
  attachRequired: false
  podInfoOnMount: true
  volumeLifecycleModes: [Persistent, Ephemeral]
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: disk}
provisioner: disk.example.com
volumeBindingMode: WaitForFirstConsumer
allowVolumeExpansion: true
---
apiVersion: v1
kind: Pod
metadata: {name: disk}
spec:
  serviceAccountName: disk
  terminationGracePeriodSeconds: 1
  containers:
  - name: driver
    image: test/csi:v1
    args: [driver, --drivername=disk.example.com, --nodeid=one, --endpoint=/csi/csi.sock, --check-volume-lifecycle]
    securityContext: {privileged: true}
    volumeMounts:
    - {name: socket, mountPath: /csi}
    - {name: state, mountPath: /csi-data-dir}
    - {name: dev, mountPath: /dev}
    - {name: pods, mountPath: %[1]s/pods, mountPropagation: Bidirectional}
    - {name: plugins, mountPath: %[1]s/plugins, mountPropagation: Bidirectional}
  - name: registrar
    image: test/csi:v1
    args: [registrar, --kubelet-registration-path=%[1]s/plugins/disk/csi.sock]
    volumeMounts: [{name: socket, mountPath: /csi}, {name: registry, mountPath: /registration}]
  - name: provisioner
    image: test/csi:v1
    args: [provisioner]
    volumeMounts: [{name: socket, mountPath: /csi}]
  - name: resizer
    image: test/csi:v1
    args: [resizer]
    volumeMounts: [{name: socket, mountPath: /csi}]
  volumes:
  - {name: socket, hostPath: {path: %[1]s/plugins/disk, type: DirectoryOrCreate}}
  - {name: state, hostPath: {path: %[2]s, type: DirectoryOrCreate}}
  - {name: dev, hostPath: {path: /dev}}
  - {name: pods, hostPath: {path: %[1]s/pods}}
  - {name: plugins, hostPath: {path: %[1]s/plugins}}
  - {name: registry, hostPath: {path: %[1]s/plugins_registry}}
---
`

const inlineUser = `apiVersion: v1
kind: Pod
metadata: {name: inline}
spec:
  restartPolicy: Never
  containers: [{name: sailor, image: "test/sailor:v1", args: [put, /data/log, short], volumeMounts: [{name: data, mountPath: /data}]}]
  volumes: [{name: data, csi: {driver: disk.example.com}}]
---
`

// TestACSIDriverProvidesVolumes uses a driver that knows nothing of knarr.
func TestACSIDriverProvidesVolumes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, "--mount")
	// The driver mounts in its container, and the node must see it.
	if out, err := c.inside("mount", "--make-rshared", "/").CombinedOutput(); err != nil {
		t.Fatalf("mount: %v\n%s", err, out)
	}
	c.up()
	c.loadProgram("test/sailor:v1", "./sailor")
	c.loadImage("test/csi:v1", program(t, "../csi", "./csitest"))
	state := filepath.Join(filepath.Dir(c.dir), "disk")
	t.Cleanup(func() {
		if t.Failed() {
			for _, args := range []string{"get pods,pvc,pv,csinodes -o wide", "get events", "logs disk --all-containers --prefix --tail=20"} {
				out, _ := c.tryKubectl("", strings.Fields(args)...)
				t.Logf("kubectl %s:\n%s", args, out)
			}
		}
	})
	c.apply(fmt.Sprintf(csiDriver, filepath.Join(c.dir, "kubelet"), state))
	c.apply(claim("data", "32Mi", "disk", "") + user("writer", "data", "", "put, /data/log, first") +
		claim("raw", "16Mi", "disk", "Block") + user("marker", "raw", "device", "put, /dev/data, anchor") + inlineUser)
	c.finished("writer")
	c.finished("marker")
	c.finished("inline")
	c.kubectl("delete", "pod", "writer", "marker", "inline", "--timeout=60s")
	c.apply(user("reader", "data", "", `say, "@/data/log"`) + user("finder", "raw", "device", "head, /dev/data, '6'"))
	c.finished("reader")
	c.finished("finder")
	if log := c.kubectl("logs", "reader"); strings.TrimSpace(log) != "first" {
		t.Errorf("the second pod read %q", log)
	}
	if log := c.kubectl("logs", "finder"); !strings.HasPrefix(log, "anchor") {
		t.Errorf("the second pod found %.20q", log)
	}
	c.apply(user("keeper", "data", "", "serve"))
	c.kubectl("wait", "--for=condition=Ready", "pod/keeper", "--timeout=60s")
	c.kubectl("patch", "pvc", "data", "-p", `{"spec":{"resources":{"requests":{"storage":"64Mi"}}}}`)
	c.kubectl("wait", "--for=jsonpath={.status.capacity.storage}=64Mi", "pvc/data", "--timeout=90s")
	c.kubectl("delete", "pod/reader", "pod/finder", "pod/keeper", "pvc/data", "pvc/raw", "--timeout=60s")
	c.kubectl("wait", "--for=delete", "pv", "--all", "--timeout=60s")
	c.eventually(time.Minute, "the driver has no volumes", func() error {
		left, err := filepath.Glob(filepath.Join(state, "volumes", "*"))
		if err != nil || len(left) > 0 {
			return fmt.Errorf("%v, %v", left, err)
		}
		return nil
	})
	c.kubectl("delete", "pod", "disk", "--timeout=60s")
	c.eventually(time.Minute, "the node has no driver", func() error {
		if out := c.kubectl("get", "csinode", "one", "-o", "jsonpath={.spec.drivers[*].name}"); strings.Contains(out, "disk") {
			return fmt.Errorf("it has %q", out)
		}
		return nil
	})
}
