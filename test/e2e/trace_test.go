package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"
)

const tracedDeployment = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: store
        image: harbour/store:v1
        env: [{name: DATA_DIR, value: /tmp}]
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
`

// hop is a hop of `knarr trace -o json`.
type hop struct {
	Group, Resource, Name, What, Maker, Actor, Request, Source, Note string

	Revision  int64
	Because   []int64
	Inferred  bool
	Begin, At time.Time
	Hops      []*hop
}

// find returns the first hop that matches, here or below.
func (h *hop) find(match func(*hop) bool) *hop {
	if match(h) {
		return h
	}
	for _, below := range h.Hops {
		if found := below.find(match); found != nil {
			return found
		}
	}
	return nil
}

func (c *cluster) trace(args ...string) (root *hop, text string, err error) {
	args = append([]string{"trace", "--data-dir", c.dir}, args...)
	out, err := c.inside(binary, append(args, "-o", "json")...).CombinedOutput()
	if err != nil {
		return nil, "", fmt.Errorf("%w: %s", err, out)
	}
	var tree struct{ Hops []*hop }
	if err := json.Unmarshal(out, &tree); err != nil || len(tree.Hops) == 0 {
		return nil, "", fmt.Errorf("%w: %s", err, out)
	}
	shown, err := c.inside(binary, args...).CombinedOutput()
	return tree.Hops[0], string(shown), err
}

// A trace names each hop from the apply to the endpoint, with its maker and its cause, also after a
// restart.
func TestATraceNamesEachHopOfARollout(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.up()
	c.loadProgram("harbour/store:v1", "../../examples/harbour/store")
	service := strings.Split(tracedDeployment, "---")[1]
	c.apply(service)
	c.apply(tracedDeployment)
	c.kubectl("wait", "--for=condition=Available", "deploy/web", "--timeout=60s")
	var text string
	c.eventually(20*time.Second, "each hop is in the trace", func() (err error) {
		var root *hop
		if root, text, err = c.trace("deploy/web"); err == nil {
			err = wholeRollout(root, "node")
		}
		return err
	})
	t.Log("\n" + text)
	for line := range strings.Lines(text) {
		if utf8.RuneCountInString(line) > 101 {
			t.Errorf("a line of %d columns: %s", utf8.RuneCountInString(line), line)
		}
	}

	c.eventually(20*time.Second, "the answers of DNS are in the trace of a Service", func() error {
		root, text, err := c.trace("service/web")
		if err != nil {
			return err
		}
		if names := root.find(func(h *hop) bool { return h.What == "DNS on one" && slices.Contains(h.Because, root.Revision) }); names == nil || names.Source != "node" {
			return fmt.Errorf("DNS is not in the trace:\n%s", text)
		}
		return nil
	})

	c.apply("{apiVersion: networking.k8s.io/v1, kind: NetworkPolicy, metadata: {name: lock}, spec: {podSelector: {matchLabels: {app: web}}, ingress: [{from: [{podSelector: {}}]}]}}")
	c.eventually(20*time.Second, "the rules of a policy are in its trace", func() error {
		root, text, err := c.trace("networkpolicy/lock")
		if err != nil {
			return err
		}
		if rules := root.find(func(h *hop) bool { return h.What == "rules on one" && slices.Contains(h.Because, root.Revision) }); rules == nil || rules.Source != "node" {
			return fmt.Errorf("the rules are not in the trace:\n%s", text)
		}
		return nil
	})
	c.kubectl("delete", "networkpolicy", "lock")

	pod := c.kubectl("get", "pods", "-l", "app=web", "-o", "jsonpath={.items[0].metadata.name}")
	c.stop(syscall.SIGTERM)
	c.up()
	// The pod was changed by no user, so its story begins with the Deployment's.
	// The node agent has forgotten its steps.
	root, _, err := c.trace("pod/" + pod)
	if err == nil {
		err = wholeRollout(root, "API")
	}
	if err != nil {
		t.Errorf("after a restart: %v", err)
	}
	if byID, _, err := c.trace("--change", root.Request); err != nil || byID.Revision != root.Revision {
		t.Errorf("by the audit ID %q: %+v, %v", root.Request, byID, err)
	}
	out, err := c.inside(binary, "trace", "--data-dir", c.dir, "deploy/web", "-o", "chrome").CombinedOutput()
	var chrome struct{ TraceEvents []any }
	if err != nil || json.Unmarshal(out, &chrome) != nil || len(chrome.TraceEvents) < 10 {
		t.Errorf("%v: %s", err, out)
	}
	out, err = c.inside(binary, "trace", "--data-dir", c.dir, "deploy/web", "-o", "otlp").CombinedOutput()
	var otlp struct{ ResourceSpans []any }
	if err != nil || json.Unmarshal(out, &otlp) != nil || len(otlp.ResourceSpans) < 5 {
		t.Errorf("%v: %s", err, out)
	}

	c.kubectl("delete", "pod", pod, "--wait")
	c.eventually(20*time.Second, "the end of the pod is in its trace", func() error {
		root, _, err := c.trace("pod/" + pod)
		if err != nil {
			return err
		}
		for _, step := range []string{"container store stopped", "sandbox, network and volumes released"} {
			if found := root.find(func(h *hop) bool { return h.What == step }); found == nil || found.Source != "node" {
				return fmt.Errorf("step %q: %+v", step, found)
			}
		}
		return nil
	})
}

// wholeRollout checks that the hops of a rollout are below each other, with the right makers and
// causes. Steps of the node are from source: the node, or the API.
func wholeRollout(root *hop, source string) error {
	if root.Resource != "deployments" || root.What != "created" || root.Actor != "kubernetes-admin" || root.Request == "" || len(root.Because) > 0 {
		return fmt.Errorf("it begins with %+v", root)
	}
	at := root
	for _, want := range []struct{ resource, what, maker string }{
		{"replicasets", "created", "deployment-controller"},
		{"pods", "created", "replicaset-controller"},
	} {
		next := at.find(func(h *hop) bool { return h.Resource == want.resource })
		if next == nil || next.What != want.what || next.Maker != want.maker || next.Inferred || !slices.Contains(next.Because, at.Revision) {
			return fmt.Errorf("below %s #%d is %+v, not %+v", at.Resource, at.Revision, next, want)
		}
		at = next
	}
	pod := at
	bound := pod.find(func(h *hop) bool { return strings.HasPrefix(h.What, "bound") })
	if bound == nil || bound.What != "bound to one" || bound.Maker != "kube-scheduler" || !slices.Contains(bound.Because, pod.Revision) {
		return fmt.Errorf("bound: %+v", bound)
	}
	status := pod.find(func(h *hop) bool { return h.Resource == "pods" && h.What == "status" && h.Maker == "node:one" })
	if status == nil || len(status.Because) == 0 {
		return fmt.Errorf("the node agent's status: %+v", status)
	}
	if err := stepsOf(pod, bound, source); err != nil {
		return err
	}
	slice := root.find(func(h *hop) bool { return h.Resource == "endpointslices" })
	if slice == nil || slice.Maker != "endpointslice-controller" || len(slice.Because) == 0 || slice.Inferred {
		return fmt.Errorf("the EndpointSlice: %+v", slice)
	}
	if source != "node" {
		return nil
	}
	// The way ends in the kernel of the node.
	rules := root.find(func(h *hop) bool { return h.What == "rules on one" })
	if rules == nil || rules.Source != "node" || rules.Maker != "node:one" || len(rules.Because) != 1 || rules.At.Before(slice.At) {
		return fmt.Errorf("the rules: %+v", rules)
	}
	return nil
}

// stepsOf checks the steps of the node in their order.
func stepsOf(pod, bound *hop, source string) error {
	if !strings.HasPrefix(bound.Note, "1 of 1 nodes fit") {
		return fmt.Errorf("how the node was chosen: %q", bound.Note)
	}
	steps := []string{"network and sandbox ready", "image store:v1 is present", "container store started", "ready"}
	if source == "node" {
		steps = []string{"volumes mounted", "network connected", "sandbox ready", "container store created", "container store started", "store readiness probe: success", "ready"}
	}
	before := bound.At
	for _, step := range steps {
		found := pod.find(func(h *hop) bool { return h.What == step })
		if found == nil || found.Maker != "node:one" || found.Source == "causal log" || (found.Source == "node") != (source == "node") {
			return fmt.Errorf("step %q: %+v", step, found)
		}
		if found.At.Before(before) || found.Begin.After(found.At) {
			return fmt.Errorf("step %q is at %v, from %v; the one before from %v", step, found.At, found.Begin, before)
		}
		if source == "node" {
			// A probe may end before the runtime has answered that the container started.
			before = found.Begin
		}
	}
	return nil
}
