package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// tiers has the workload, the Service and the Component of each part of an application.
func tiers() string {
	var all strings.Builder
	for _, part := range []struct{ name, spec string }{
		{"web", "exposed: [http], requires: [{component: api}]"},
		{"api", "requires: [{component: store, port: http}]"},
		{"store", "levels: {availability: 100}"},
	} {
		fmt.Fprintf(&all, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: sailor
        image: e2e/sailor:v1
        ports: [{name: web, containerPort: 8080}]
        readinessProbe: {httpGet: {path: /, port: web}, periodSeconds: 1, failureThreshold: 1}
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s}
spec: {selector: {app: %[1]s}, ports: [{port: 80, targetPort: web}]}
---
apiVersion: architecture.knarr.io/v1alpha1
kind: Component
metadata: {name: %[1]s}
spec: {selector: {matchLabels: {app: %[1]s}}, offers: [{name: http, port: web}], %[2]s}
---`, part.name, part.spec)
	}
	return all.String()
}

const boundary = `
apiVersion: architecture.knarr.io/v1alpha1
kind: System
metadata: {name: shop}
spec: {namespaces: [default], network: %s, admission: Deny}
`

// TestDeclaredComponentsMayConnectAndOthersMayNot checks NetworkPolicies that are made from
// Components, with real pods.
func TestDeclaredComponentsMayConnectAndOthersMayNot(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.up()
	c.loadProgram("e2e/sailor:v1", "./sailor")
	c.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=60s")
	c.kubectl("wait", "--for=condition=Established", "crd/components.architecture.knarr.io", "crd/systems.architecture.knarr.io", "--timeout=60s")
	c.apply(tiers())
	c.apply(fmt.Sprintf(boundary, "Enforce"))
	conforms := func(status string) {
		t.Helper()
		c.eventually(2*time.Minute, "the system conforms: "+status, func() error {
			out := c.kubectl("get", "component,system", "-A", "-o", `jsonpath={range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Conforms")].status} {end}`)
			if want := "api=" + status + " store=" + status + " web=" + status + " shop=" + status; strings.TrimSpace(out) != want {
				return fmt.Errorf("%s, want %s", out, want)
			}
			return nil
		})
	}
	conforms("True")
	reaches := func(from, to string, want bool) {
		t.Helper()
		c.eventually(time.Minute, fmt.Sprintf("%s reaches %s: %t", from, to, want), func() error {
			if out, err := c.tryKubectl("", "exec", "deploy/"+from, "--", "/sailor", "fetch", "http://"+to+".default.svc.cluster.local", "1"); (err == nil) != want {
				return fmt.Errorf("%v: %s", err, out)
			}
			return nil
		})
	}
	reaches("web", "api", true)
	reaches("api", "store", true)
	reaches("web", "store", false)
	reaches("store", "api", false)
	if out := c.kubectl("get", "networkpolicies", "-o", "name"); strings.Count(out, "component-") != 5 {
		t.Errorf("policies:\n%s", out)
	}
	t.Log("probes still pass")
	c.kubectl("rollout", "restart", "deploy/store")
	c.kubectl("rollout", "status", "deploy/store", "--timeout=60s")
	reaches("api", "store", true)

	t.Log("a new requirement opens the way, a forbidden one is refused")
	c.kubectl("patch", "component", "web", "--type=merge", "-p", `{"spec":{"requires":[{"component":"api"},{"component":"store"}]}}`)
	reaches("web", "store", true)
	if out, err := c.tryKubectl("", "patch", "component", "store", "--type=merge", "-p", `{"spec":{"requires":[{"component":"web"}]}}`); err == nil || !strings.Contains(out, "the requirements form a circle: default/store → default/web → default/store") {
		t.Errorf("a circle: %v %s", err, out)
	}
	c.kubectl("patch", "component", "web", "--type=merge", "-p", `{"spec":{"requires":[{"component":"api"}]}}`)
	reaches("web", "store", false)

	t.Log("Report opens everything")
	c.apply(fmt.Sprintf(boundary, "Report"))
	reaches("web", "store", true)
	reaches("store", "api", true)
	c.eventually(time.Minute, "no policy", func() error {
		if out := c.kubectl("get", "networkpolicies", "-o", "name"); out != "" {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	c.eventually(time.Minute, "the open connections are found", func() error {
		out := c.kubectl("get", "components", "-o", `jsonpath={range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="TrafficDeclared")].status} {end}`)
		if want := "api=True store=False web=False"; strings.TrimSpace(out) != want {
			return fmt.Errorf("%s, want %s", out, want)
		}
		return nil
	})
}
