package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
)

// intruder is a pod of the component web that connects to the store.
const intruder = `
apiVersion: v1
kind: Pod
metadata: {name: intruder, namespace: harbour, labels: {app: web}}
spec: {terminationGracePeriodSeconds: 1, containers: [{name: sailor, image: e2e/sailor:v1}]}
`

// relation is a relation of `knarr map -o json`.
type relation struct {
	From, To    struct{ Namespace, Name string }
	Sources     []string
	Differences []string
}

// relation returns what the map knows of two components of the harbour.
func (c *cluster) relation(from, to string) (relation, error) {
	out, err := c.tool(binary, "map", "-n", "harbour", "-o", "json").Output()
	if err != nil {
		return relation{}, err
	}
	var g struct{ Relations []relation }
	if err := json.Unmarshal(out, &g); err != nil {
		return relation{}, err
	}
	for _, r := range g.Relations {
		if r.From.Name == from && r.To.Name == to {
			return r, nil
		}
	}
	return relation{}, fmt.Errorf("no relation between %s and %s in %s", from, to, out)
}

// TestHarbourIsComparedWithItsArchitecture checks what becomes of connections that the declared
// architecture allows, does not declare, and forbids.
func TestHarbourIsComparedWithItsArchitecture(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.up()
	for _, part := range []string{"store", "api", "web"} {
		c.loadProgram("harbour/"+part+":v1", "../../examples/harbour/"+part)
	}
	c.loadProgram("e2e/sailor:v1", "./sailor")
	c.kubectl("apply", "-f", "../../examples/harbour/harbour.yaml")
	if n := c.counting(); n != 0 {
		t.Errorf("%d rules count connections, and nothing is declared", n)
	}
	c.eventually(10*time.Second, "the architecture is declared", func() error {
		_, err := c.tryKubectl("", "apply", "-f", "../../examples/harbour/architecture.yaml")
		return err
	})
	c.apply(intruder)
	for _, workload := range []string{"statefulset/store", "deployment/api", "deployment/web"} {
		c.kubectl("-n", "harbour", "rollout", "status", workload, "--timeout=120s")
	}
	c.kubectl("-n", "harbour", "wait", "--for=condition=Ready", "pod/intruder", "--timeout=60s")
	c.eventually(10*time.Second, "connections are counted", func() error {
		if c.counting() == 0 {
			return fmt.Errorf("no rules count connections")
		}
		return nil
	})
	address := "http://" + strings.TrimSpace(c.kubectl("-n", "harbour", "get", "service", "web", "-o", "jsonpath={.spec.clusterIP}"))
	c.eventually(time.Minute, "the harbour answers", func() error { return c.post(address+"/arrivals", `{"ship": "Knarr"}`) })
	for _, pair := range [][2]string{{"web", "api"}, {"api", "store"}} {
		c.eventually(10*time.Second, pair[0]+" is seen to use "+pair[1], func() error {
			r, err := c.relation(pair[0], pair[1])
			if err == nil && (!slices.Equal(r.Sources, []string{"declared", "derived", "seen"}) || len(r.Differences) > 0) {
				return fmt.Errorf("%+v", r)
			}
			return err
		})
	}

	fetch := func() error {
		out, err := c.tryKubectl("", "-n", "harbour", "exec", "intruder", "--", "/sailor", "fetch", "http://store:8080/healthz", "1")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	c.eventually(time.Minute, "the intruder reaches the store", fetch)
	c.eventually(10*time.Second, "the connection is found", func() error {
		r, err := c.relation("web", "store")
		if err == nil && (!slices.Contains(r.Sources, "seen") || !slices.Contains(r.Differences, "seen, not declared")) {
			return fmt.Errorf("%+v", r)
		}
		return err
	})
	c.condition("web", "TrafficDeclared", "False")
	c.condition("api", "TrafficDeclared", "True")

	c.kubectl("patch", "system", "harbour", "--type=merge", "-p", `{"spec":{"network":"Enforce"}}`)
	c.eventually(time.Minute, "the intruder is denied", func() error {
		if fetch() == nil {
			return fmt.Errorf("it reaches the store")
		}
		return nil
	})
	c.eventually(10*time.Second, "the denied connection is found", func() error {
		r, err := c.relation("web", "store")
		if err == nil && (!slices.Contains(r.Sources, "denied") || !slices.Contains(r.Differences, "denied")) {
			return fmt.Errorf("%+v", r)
		}
		return err
	})
	if err := c.post(address+"/arrivals", `{"ship": "Knarr"}`); err != nil {
		t.Errorf("the harbour does not work any more: %v", err)
	}

	c.kubectl("delete", "-f", "../../examples/harbour/architecture.yaml")
	c.eventually(10*time.Second, "connections are not counted any more", func() error {
		if n := c.counting(); n != 0 {
			return fmt.Errorf("%d rules", n)
		}
		return nil
	})
}

// condition waits until a Component of the harbour has the condition.
func (c *cluster) condition(component, kind, want string) {
	c.t.Helper()
	c.eventually(10*time.Second, component+" "+kind, func() error {
		got, err := c.tryKubectl("", "-n", "harbour", "get", "component", component, "-o", fmt.Sprintf(`jsonpath={.status.conditions[?(@.type==%q)].status}`, kind))
		if err == nil && got != want {
			return fmt.Errorf("%q", got)
		}
		return err
	})
}

// counting returns the number of chains that count connections.
func (c *cluster) counting() (n int) {
	c.t.Helper()
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", c.space.pid))
	if err != nil {
		c.t.Fatal(err)
	}
	defer ns.Close()
	conn, err := nftables.New(nftables.WithNetNSFd(int(ns.Fd())))
	if err != nil {
		c.t.Fatal(err)
	}
	chains, err := conn.ListChains()
	if err != nil {
		c.t.Fatal(err)
	}
	for _, chain := range chains {
		if strings.HasPrefix(chain.Name, "seen-") {
			n++
		}
	}
	return n
}

// TestNodesTellTheirTraffic checks the traffic between nodes that cannot read each other's pods.
func TestNodesTellTheirTraffic(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	f.addWorkers("east", "west")
	f.loadProgram("e2e/sailor:v1", "./sailor", f.workers...)
	f.apply(harbor)
	f.apply(laws)
	for _, set := range [][2]string{{"default", "quay"}, {"abroad", "friend"}, {"abroad", "pirate"}} {
		f.kubectl("rollout", "status", "-n", set[0], "daemonset/"+set[1], "--timeout=60s")
	}
	f.apply(`
apiVersion: architecture.knarr.io/v1alpha1
kind: Component
metadata: {name: quay}
spec: {selector: {matchLabels: {app: quay}}, offers: [{name: web, port: 8080}]}
`)
	for _, w := range f.workers {
		f.eventually(time.Minute, "node "+w.name+" counts", func() error {
			_, err := f.tryKubectl("", "get", "traffic", w.name)
			return err
		})
	}
	quays := f.podsOf("default", "quay")
	for _, app := range []string{"friend", "pirate"} {
		for from, pod := range f.podsOf("abroad", app) {
			for to, quay := range quays {
				verdict := map[string]string{"friend": "Allowed", "pirate": "Denied"}[app]
				f.eventually(time.Minute, fmt.Sprintf("%s on %s to %s: %s", app, from, to, verdict), func() error {
					_, _ = f.tryKubectl("", "exec", "-n", "abroad", pod.name, "--", "/sailor", "fetch", "http://"+quay.ip+":8080", "1")
					out, err := f.tryKubectl("", "get", "traffic", to, "-o", `jsonpath={range .entries[*]}{.from.kind}/{.from.name} {.to.kind}/{.to.name}:{.to.port} {.verdict}{"\n"}{end}`)
					if want := fmt.Sprintf("DaemonSet/%s DaemonSet/quay:8080 %s\n", app, verdict); err == nil && !strings.Contains(out, want) {
						return fmt.Errorf("%q is missing in\n%s", want, out)
					}
					return err
				})
			}
		}
	}
	f.kubectl("delete", "component", "quay")
	f.eventually(time.Minute, "nothing is counted any more", func() error {
		if out := f.kubectl("get", "traffic", "-o", "name"); out != "" {
			return fmt.Errorf("there are %s", out)
		}
		return nil
	})
}
