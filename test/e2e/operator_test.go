package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const harbourMaster = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: harbour-master}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: harbour-master}
rules:
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: [get, create, update]}
- {apiGroups: [events.k8s.io], resources: [events], verbs: [create, patch]}
- {apiGroups: [""], resources: [events], verbs: [create, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: harbour-master}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: harbour-master}
subjects: [{kind: ServiceAccount, name: harbour-master}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: harbour-master}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get, list, watch, update, patch]}
- {apiGroups: [""], resources: [configmaps/finalizers], verbs: [update]}
- {apiGroups: [""], resources: [pods], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [pods/status], verbs: [patch]}
- {apiGroups: [apps], resources: [deployments], verbs: [get, list, watch, create, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: harbour-master}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: harbour-master}
subjects: [{kind: ServiceAccount, name: harbour-master, namespace: default}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: harbour-master}
spec:
  replicas: 2
  selector: {matchLabels: {app: harbour-master}}
  template:
    metadata: {labels: {app: harbour-master}}
    spec:
      serviceAccountName: harbour-master
      terminationGracePeriodSeconds: 0
      containers:
      - name: controller
        image: e2e/controller:v1
        readinessProbe: {httpGet: {path: /readyz, port: 8081}, periodSeconds: 1}
`

const fleetOfTwo = `
apiVersion: v1
kind: ConfigMap
metadata: {name: herring, labels: {kind: fleet}}
data: {ships: "2", image: "e2e/sailor:v1"}
`

// TestControllerRuntime runs an operator in two pods with the rights of their service account. It
// uses leader election, a cache, owner references, finalizers, conditions and Events. When the
// leader dies, the other pod takes over. The API server uses the plain
// transport.
func TestControllerRuntime(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.start("up", "--http-transport", "plain")
	c.loadProgram("e2e/sailor:v1", "./sailor")
	c.loadImage("e2e/controller:v1", program(t, "../interop", "github.com/knarr-project/knarr/test/interop/controller"))
	c.apply(harbourMaster)
	c.kubectl("rollout", "status", "deployment/harbour-master", "--timeout=60s")
	c.apply(fleetOfTwo)
	c.waitFleet("2/2")
	owner := "jsonpath={.metadata.ownerReferences[0].kind}/{.metadata.ownerReferences[0].name} {.metadata.ownerReferences[0].controller}"
	if out := c.kubectl("get", "deployment", "herring", "-o", owner); out != "ConfigMap/herring true" {
		t.Errorf("the Deployment's owner is %q", out)
	}
	if out := c.kubectl("get", "pods", "-l", "harbour.example.com/fleet=herring", "-o", `jsonpath={.items[*].status.conditions[?(@.type=="harbour.example.com/berthed")].reason}`); out != "Moored Moored" {
		t.Errorf("the pods' gates: %q", out)
	}
	c.eventually(time.Minute, "the controller's events", func() error {
		if out := c.kubectl("events", "--for=configmap/herring"); !strings.Contains(out, "created: 2 ships") {
			return fmt.Errorf("got %s", out)
		}
		return nil
	})

	leader := func() string {
		holder, _, _ := strings.Cut(c.kubectl("get", "lease", "harbour-master", "-o", "jsonpath={.spec.holderIdentity}"), "_")
		return holder
	}
	first := leader()
	c.kubectl("delete", "pod", first, "--grace-period=0", "--force", "--timeout=60s")
	c.kubectl("patch", "configmap", "herring", "--type=merge", "-p", `{"data":{"ships":"3"}}`)
	c.waitFleet("3/3")
	if second := leader(); second == first {
		t.Errorf("%s still leads", second)
	}

	c.kubectl("delete", "configmap", "herring", "--timeout=60s")
	c.eventually(time.Minute, "what the fleet owned goes with it", func() error {
		if out := c.kubectl("get", "deployments,replicasets,pods", "-o", "name"); strings.Contains(out, "herring") {
			return fmt.Errorf("there are %s", out)
		}
		return nil
	})
	if out := c.kubectl("get", "events.events.k8s.io", "-o", "jsonpath={.items[*].reason}"); !strings.Contains(out, "Farewell") {
		t.Errorf("events: %s", out)
	}
}

func (c *cluster) waitFleet(ready string) {
	c.t.Helper()
	c.kubectl("wait", "configmap/herring", "--for=jsonpath={.metadata.annotations.ready}="+ready, "--timeout=60s")
}
