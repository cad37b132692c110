package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// balanced is a Service of type LoadBalancer with a pod on each worker.
const balanced = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: sailor
        image: e2e/sailor:v1
        env: [{name: POD_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: LoadBalancer, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
`

const pool = `
apiVersion: knarr.dev/v1alpha1
kind: LoadBalancerPool
metadata: {name: harbour}
spec: {addresses: [192.168.88.200-192.168.88.209], namespaces: [default]}
`

// guest is a machine of the network that is not in the cluster.
func (l *lan) guest(host int) *space {
	l.t.Helper()
	g := newSpace(l.t, "--net")
	l.t.Cleanup(g.end)
	l.serial++
	port := fmt.Sprintf("port%d", l.serial)
	g.ip(l.t, "link set lo up")
	g.ip(l.t, fmt.Sprintf("link add uplink type veth peer name %s netns %d", port, l.space.pid))
	l.space.ip(l.t, "link set "+port+" master lan up")
	g.ip(l.t, fmt.Sprintf("addr add 192.168.88.%d/24 dev uplink", host))
	g.ip(l.t, "link set uplink up")
	return g
}

func TestAnAddressFromAPoolMovesToAnotherNode(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "--load-balancer-pool", "resources", "--node-monitor-grace-period", "20s")
	f.addWorkers("east", "west")
	f.sailor = f.loadProgram("e2e/sailor:v1", "./sailor", f.workers...)
	f.apply(balanced)
	f.eventually(time.Minute, "an event explains that the Service has no pool", func() error {
		if out := f.kubectl("get", "events"); !strings.Contains(out, "No pool selects this Service") {
			return errors.New(out)
		}
		return nil
	})
	f.apply(pool)
	f.kubectl("rollout", "status", "daemonset/web", "--timeout=60s")
	f.kubectl("wait", "--for=jsonpath={.status.loadBalancer.ingress[0].ip}=192.168.88.200", "service/web", "--timeout=60s")
	guest := f.guest(99)
	fetch := func() error {
		out, err := guest.command("timeout", "3", f.sailor, "fetch", "http://192.168.88.200").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	f.eventually(time.Minute, "the Service's address answers outside of the cluster", fetch)

	f.kubectl("patch", "service", "web", "-p", `{"spec":{"loadBalancerSourceRanges":["10.99.0.0/16"]}}`)
	f.eventually(time.Minute, "clients outside of the source ranges are refused", func() error {
		if fetch() == nil {
			return errors.New("the client is served")
		}
		return nil
	})
	f.kubectl("patch", "service", "web", "-p", `{"spec":{"loadBalancerSourceRanges":["192.168.88.96/28"]}}`)
	f.eventually(time.Minute, "clients within the source ranges are served", fetch)

	holder := func() string { return macOf(guest, "neigh", "show", "192.168.88.200") }
	first := holder()
	var killed *machine
	for _, w := range f.workers {
		if macOf(w.space, "-o", "link", "show", "dev", "uplink") == first {
			killed = w
		}
	}
	if killed == nil {
		t.Fatalf("no worker answers for the address, but %q", first)
	}
	killed.crash()
	start := time.Now()
	f.eventually(time.Minute, "another node answers for the address", func() error {
		_ = guest.command("ip", "neigh", "flush", "dev", "uplink").Run()
		// A request resolves the address anew.
		_ = guest.command("timeout", "0.2", f.sailor, "fetch", "http://192.168.88.200").Run()
		if now := holder(); now == first || now == "" {
			return fmt.Errorf("it is %q", now)
		}
		return nil
	})
	t.Logf("the address has moved %s after the node was killed and its processes were gone", time.Since(start).Round(time.Millisecond))
	f.eventually(time.Minute, "the Service's address answers again", fetch)
}

// macOf returns the hardware address in the output of ip.
func macOf(s *space, args ...string) string {
	out, _ := s.command("ip", args...).Output()
	fields := strings.Fields(string(out))
	for i, field := range fields {
		if (field == "lladdr" || field == "link/ether") && i+1 < len(fields) {
			return fields[i+1]
		}
	}
	return ""
}

func TestServicesHaveTheNodesAddressesByDefault(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	c := &cluster{newMachine(t, "one")}
	l.plug(c.machine)
	c.up()
	sailor := c.loadProgram("e2e/sailor:v1", "./sailor")
	c.apply(balanced)
	c.apply(strings.ReplaceAll(balanced[strings.LastIndex(balanced, "---"):], "name: web", "name: twin"))
	c.kubectl("rollout", "status", "daemonset/web", "--timeout=60s")
	c.kubectl("wait", "--for=jsonpath={.status.loadBalancer.ingress[0].ip}="+l.address(c.machine), "service/web", "--timeout=60s")
	guest := l.guest(99)
	c.eventually(time.Minute, "the node's address serves the Service", func() error {
		out, err := guest.command("timeout", "3", sailor, "fetch", "http://"+l.address(c.machine)).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	c.eventually(time.Minute, "an event explains the conflict of ports", func() error {
		if out := c.kubectl("get", "events"); !strings.Contains(out, "belongs to the Service default/web") {
			return errors.New(out)
		}
		return nil
	})
}
