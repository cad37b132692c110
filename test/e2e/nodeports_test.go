package e2e

import (
	"syscall"
	"testing"
	"time"
)

// The machine's only address is 127.0.0.1.
func TestNodePortsAnswerOnAMachineWithOnlyLoopback(t *testing.T) {
	c := &cluster{newMachine(t, "alone")}
	for range 2 { // the second time, the pod network exists already
		c.up()
		if node := c.kubectl("get", "nodes", "-o", `jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}`); node != "127.0.0.1" {
			t.Errorf("the node's address is %s", node)
		}
		c.loadProgram("harbour/web:v1", "../../examples/harbour/web")
		c.apply(webOnANodePort)
		c.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
		c.eventually(time.Minute, "the load balancer's address answers", func() error {
			_, err := c.get("http://127.0.0.1:8099/healthz")
			return err
		})
		for _, host := range []string{"127.0.0.1", "localhost", "[::1]"} {
			c.eventually(time.Minute, "the node port answers on "+host, func() error {
				_, err := c.get("http://" + host + ":30090/healthz")
				return err
			})
		}
		c.stop(syscall.SIGTERM)
	}
}

const webOnANodePort = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: "harbour/web:v1", env: [{name: API_URL, value: "http://api"}], readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080, nodePort: 30090}]}
---
apiVersion: v1
kind: Service
metadata: {name: balanced}
spec: {type: LoadBalancer, selector: {app: web}, ports: [{port: 8099, targetPort: 8080}]}
`
