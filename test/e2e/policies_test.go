package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// harbor is one server pod and two clients on each node, of which one may enter.
const harbor = `
apiVersion: v1
kind: Namespace
metadata: {name: abroad, labels: {side: abroad}}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: quay}
spec:
  selector: {matchLabels: {app: quay}}
  template:
    metadata: {labels: {app: quay}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: sailor, image: e2e/sailor:v1, ports: [{name: web, containerPort: 8080}]}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: friend, namespace: abroad}
spec:
  selector: {matchLabels: {app: friend}}
  template:
    metadata: {labels: {app: friend}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: sailor, image: e2e/sailor:v1}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: pirate, namespace: abroad}
spec:
  selector: {matchLabels: {app: pirate}}
  template:
    metadata: {labels: {app: pirate}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: sailor, image: e2e/sailor:v1}]
`

// laws let friends from abroad enter the quay.
const laws = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: quay}
spec:
  podSelector: {matchLabels: {app: quay}}
  ingress:
  - from: [{namespaceSelector: {matchLabels: {side: abroad}}, podSelector: {matchLabels: {app: friend}}}]
    ports: [{port: web}]
`

// blockade lets friends out to the quays only.
const blockade = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: blockade, namespace: abroad}
spec:
  podSelector: {matchLabels: {app: friend}}
  policyTypes: [Egress]
  egress:
  - {to: [{namespaceSelector: {}, podSelector: {matchLabels: {app: quay}}}], ports: [{port: web}]}
`

// crowd is three pods on one node.
const crowd = `
apiVersion: v1
kind: Pod
metadata: {name: quay, labels: {app: quay}}
spec: {terminationGracePeriodSeconds: 1, containers: [{name: sailor, image: e2e/sailor:v1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: friend, labels: {app: friend}}
spec: {terminationGracePeriodSeconds: 1, containers: [{name: sailor, image: e2e/sailor:v1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: pirate, labels: {app: pirate}}
spec: {terminationGracePeriodSeconds: 1, containers: [{name: sailor, image: e2e/sailor:v1}]}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: quay}
spec:
  podSelector: {matchLabels: {app: quay}}
  ingress: [{from: [{podSelector: {matchLabels: {app: friend}}}]}]
`

// TestPoliciesOnOneNode checks policies where server and node are one process, also after a
// restart.
func TestPoliciesOnOneNode(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.up()
	c.loadProgram("e2e/sailor:v1", "./sailor")
	c.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=60s")
	c.apply(crowd)
	c.kubectl("wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s")
	address := "http://" + c.kubectl("get", "pod", "quay", "-o", "jsonpath={.status.podIP}") + ":8080"
	enters := func(pod string, want bool) {
		t.Helper()
		c.eventually(time.Minute, fmt.Sprintf("%s enters: %t", pod, want), func() error {
			if out, err := c.tryKubectl("", "exec", pod, "--", "/sailor", "fetch", address, "1"); (err == nil) != want {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
	}
	enters("friend", true)
	enters("pirate", false)
	c.kubectl("label", "pod", "pirate", "app=friend", "--overwrite")
	enters("pirate", true)
	c.stop(syscall.SIGTERM)
	c.up()
	c.kubectl("label", "pod", "pirate", "app=pirate", "--overwrite")
	enters("pirate", false)
	enters("friend", true)
}

// podsOf returns the running pods of an app by node.
func (f *fleet) podsOf(namespace, app string) map[string]member {
	f.t.Helper()
	out := f.kubectl("get", "pods", "-n", namespace, "-l", "app="+app, "-o",
		`jsonpath={range .items[?(@.status.phase=="Running")]}{.metadata.name} {.spec.nodeName} {.status.podIP}{"\n"}{end}`)
	byNode := map[string]member{}
	for line := range strings.Lines(out) {
		if fields := strings.Fields(line); len(fields) == 3 {
			byNode[fields[1]] = member{fields[0], fields[2]}
		}
	}
	return byNode
}

// TestPoliciesAcrossNodes checks that network policies hold between nodes that cannot read each
// other's pods: the server publishes addresses of peers.
func TestPoliciesAcrossNodes(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.addWorkers("east", "west")
	f.loadProgram("e2e/sailor:v1", "./sailor", f.workers...)
	f.apply(harbor)
	rollout := func(namespace, name string) {
		f.kubectl("rollout", "status", "-n", namespace, "daemonset/"+name, "--timeout=60s")
	}
	rollout("default", "quay")
	rollout("abroad", "friend")
	rollout("abroad", "pirate")

	// enters checks which pods reach the quays of all nodes.
	enters := func(app string, want bool) {
		t.Helper()
		for from, pod := range f.podsOf("abroad", app) {
			for to, quay := range f.podsOf("default", "quay") {
				f.eventually(time.Minute, fmt.Sprintf("%s on %s enters on %s: %t", app, from, to, want), func() error {
					out, err := f.tryKubectl("", "exec", "-n", "abroad", pod.name, "--", "/sailor", "fetch", "http://"+quay.ip+":8080", "1")
					if (err == nil) != want {
						return fmt.Errorf("%w: %s", err, out)
					}
					return nil
				})
			}
		}
	}
	enters("friend", true)
	enters("pirate", true)
	f.apply(laws)
	enters("pirate", false)
	enters("friend", true)
	f.apply(blockade)
	enters("friend", true)

	// New pods get new addresses.
	f.kubectl("delete", "pods", "-n", "abroad", "--all", "--wait=true", "--timeout=60s")
	f.kubectl("delete", "pods", "-l", "app=quay", "--wait=true", "--timeout=60s")
	rollout("default", "quay")
	rollout("abroad", "friend")
	rollout("abroad", "pirate")
	enters("friend", true)
	enters("pirate", false)
	f.kubectl("label", "namespace", "abroad", "side=enemy", "--overwrite")
	enters("friend", false)
	f.kubectl("label", "namespace", "abroad", "side=abroad", "--overwrite")
	enters("friend", true)

	// A node has the kubelet's rights only.
	for _, w := range f.workers {
		node := []string{
			"kubectl", "--kubeconfig", "/dev/null", "--server", "https://" + f.address(f.machine) + ":6443", "--certificate-authority", filepath.Join(w.dir, "pki", "ca.crt"),
			"--client-certificate", filepath.Join(w.dir, "pki", "node.pem"), "--client-key", filepath.Join(w.dir, "pki", "node.pem"),
		}
		for _, refused := range []string{"pods -A", "nodes", "namespaces", "policypeers", "endpointslices -A", "secrets -A"} {
			out, err := w.inside(binary, append(node, append([]string{"get"}, strings.Fields(refused)...)...)...).CombinedOutput()
			if err == nil || !strings.Contains(string(out), "forbidden") {
				t.Errorf("node %s gets %s: %v %s", w.name, refused, err, out)
			}
		}
		if out, err := w.inside(binary, append(node, "get", "pods", "-A", "--field-selector", "spec.nodeName="+w.name)...).CombinedOutput(); err != nil {
			t.Errorf("node %s does not get its pods: %v %s", w.name, err, out)
		}
		// The node's parts have written it.
		f.kubectl("get", "endpointslice", "-n", "kube-system", "kube-dns-"+w.name)
	}
	f.kubectl("delete", "networkpolicies", "-A", "--all")
	enters("pirate", true)
	f.eventually(time.Minute, "peers are published only while policies need them", func() error {
		if out := f.kubectl("get", "policypeers", "-o", "name"); out != "" {
			return fmt.Errorf("there are %s", out)
		}
		return nil
	})
}
