package e2e

import (
	"bufio"
	"bytes"
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const tavern = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: tavern, labels: {app: tavern}}
spec:
  replicas: 2
  selector: {matchLabels: {app: tavern}}
  template:
    metadata: {labels: {app: tavern}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: sailor
        image: e2e/sailor:v1
        env: [{name: SONG, value: shanty}]
        ports: [{containerPort: 8080}]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1}
`

// TestUpstreamsKubectl runs the commands of upstream's own kubectl in the order in which a user
// would meet them.
func TestUpstreamsKubectl(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	c.up()
	c.loadImage("e2e/sailor:v1", sailorWithTar(c))
	k := &kubectl{c, []string{upstreamsKubectl(t)}, filepath.Join(t.TempDir(), "tavern.yaml")}
	t.Run("commands", func(t *testing.T) {
		for _, page := range []string{"making", "reading", "changing", "workloads", "permissions", "fleet", "containers", "settings"} {
			t.Run(page, func(t *testing.T) { t.Parallel(); k.runPage(t, page, page) })
		}
		t.Run("reading, by the bundled kubectl", func(t *testing.T) {
			t.Parallel()
			bundled := &kubectl{c, []string{binary, "kubectl"}, k.manifest}
			bundled.runPage(t, "reading", "bundled")
		})
	})
	if err := os.WriteFile(k.manifest, []byte(tavern), 0o600); err != nil {
		t.Fatal(err)
	}
	steps := []struct {
		name string
		args string // %F is the manifest's file
		want []string
	}{
		{"the versions", "version", []string{"Client Version: v1.36.3", "Server Version: v1.36.3"}},
		{"where", "cluster-info", []string{"is running at https://127.0.0.1:6443"}},
		{"which kinds", "api-resources --api-group=apps -o name", []string{"deployments.apps", "statefulsets.apps"}},
		{"the meaning of a field", "explain deployment.spec.strategy.rollingUpdate.maxSurge", []string{"FIELD: maxSurge <IntOrString>", "maximum number of pods that can be scheduled above the desired"}},
		{"the own rights", "auth can-i create deployments", []string{"yes"}},
		{"the rights of another user", "auth can-i list secrets --as=system:serviceaccount:default:default", []string{"no"}},
		{"the own user", "auth whoami -o jsonpath={.status.userInfo.groups}", []string{"system:masters"}},
		{"a namespace", "create namespace port", []string{"namespace/port created"}},
		{"a ConfigMap", "-n port create configmap chart --from-literal=depth=12", []string{"configmap/chart created"}},
		{"a Secret", "-n port create secret generic seal --from-literal=wax=red", []string{"secret/seal created"}},
		{"a token", "create token default --duration=10m", []string{"eyJ"}},
		{"the changes of an apply", "-n port diff -f %F", []string{"+  name: tavern"}},
		{"a dry run on the server", "-n port apply -f %F --dry-run=server", []string{"deployment.apps/tavern created (server dry run)"}},
		{"client-side apply", "-n port apply -f %F", []string{"deployment.apps/tavern created"}},
		{"its progress", "-n port rollout status deployment/tavern --timeout=60s", []string{"successfully rolled out"}},
		{"nothing to change", "-n port apply -f %F", []string{"deployment.apps/tavern unchanged"}},
		{"waiting", "-n port wait deployment/tavern --for=condition=Available --timeout=60s", []string{"condition met"}},
		{"waiting for a value", "-n port wait deployment/tavern --for=jsonpath={.status.readyReplicas}=2 --timeout=60s", []string{"condition met"}},
		{"a table", "-n port get deployments,pods -o wide", []string{"deployment.apps/tavern   2/2", "e2e/sailor:v1", "Running"}},
		{"own columns", "-n port get pods -o custom-columns=PHASE:.status.phase --no-headers", []string{"Running\nRunning"}},
		{"several kinds at once", "-n port get all", []string{"replicaset.apps/tavern-"}},
		{"the story of an object", "-n port describe deployment tavern", []string{"Replicas:               2 desired", "ScalingReplicaSet", "SONG:"}},
		{"the story of pods", "-n port describe pods -l app=tavern --show-events", []string{"Successfully assigned port/tavern-", "Started", "Ready             True"}},
		{"the story of a node", "describe node one", []string{"Non-terminated Pods", "Allocated resources", "tavern-"}},
		{"events", "-n port events --for deployment/tavern", []string{"Scaled up replica set"}},
		{"logs by selector", "-n port logs -l app=tavern --prefix --timestamps", []string{"[pod/tavern-", "listening on :8080"}},
		{"logs of a workload", "-n port logs deployment/tavern --all-pods=false --tail=1", []string{"listening on :8080"}},
		{"a command inside", "-n port exec deployment/tavern -- /sailor say hello @/etc/hostname", []string{"hello tavern-"}},
		{"labels", "-n port label deployment tavern tier=front", []string{"labeled"}},
		{"annotations", "-n port annotate deployment tavern keeper=olaf", []string{"annotated"}},
		{"a strategic patch", `-n port patch deployment tavern -p {"spec":{"minReadySeconds":1}}`, []string{"patched"}},
		{"a JSON patch", `-n port patch deployment tavern --type=json -p [{"op":"replace","path":"/spec/minReadySeconds","value":0}]`, []string{"patched"}},
		{"more of them", "-n port scale deployment tavern --replicas=3 --current-replicas=2", []string{"scaled"}},
		{"more of them, running", "-n port rollout status deployment/tavern --timeout=60s", []string{"successfully rolled out"}},
		{"new settings", "-n port set env deployment/tavern SONG=ballad", []string{"env updated"}},
		{"the new ones, running", "-n port rollout status deployment/tavern --timeout=60s", []string{"successfully rolled out"}},
		{"the new setting inside", "-n port get pods -l app=tavern -o jsonpath={.items[*].spec.containers[0].env[0].value}", []string{"ballad ballad ballad"}},
		{"history", "-n port rollout history deployment/tavern", []string{"REVISION", "1 ", "2 "}},
		{"back", "-n port rollout undo deployment/tavern", []string{"rolled back"}},
		{"back, running", "-n port rollout status deployment/tavern --timeout=60s", []string{"successfully rolled out"}},
		{"restart", "-n port rollout restart deployment/tavern", []string{"restarted"}},
		{"restarted", "-n port rollout status deployment/tavern --timeout=60s", []string{"successfully rolled out"}},
		{"pause", "-n port rollout pause deployment/tavern", []string{"paused"}},
		{"resume", "-n port rollout resume deployment/tavern", []string{"resumed"}},
		{"server-side apply over it", "-n port apply --server-side --force-conflicts -f %F", []string{"serverside-applied"}},
		{"another manager's conflict", "-n port apply --server-side --field-manager=stranger -f - < replicas", []string{"conflict", "kubectl"}},
		{"one pod less", "-n port wait deployment/tavern --for=jsonpath={.status.terminatingReplicas}=0 --timeout=60s", []string{"condition met"}},
		{"a Service", "-n port expose deployment tavern --port=80 --target-port=8080", []string{"service/tavern exposed"}},
		{"its endpoints", "-n port get endpointslices -l kubernetes.io/service-name=tavern -o jsonpath={.items[*].endpoints[*].conditions.ready}", []string{"true true"}},
		// kubectl loses output of a container from before it attaches. So this one waits for the
		// end of its input.
		{"a pod for once", "-n port run guest --image=e2e/sailor:v1 --restart=Never --rm -i --quiet --command -- /sailor await fetch http://tavern", []string{"tavern-"}},
		{"a Job", "-n port create job count --image=e2e/sailor:v1 -- /sailor say one two three", []string{"job.batch/count created"}},
		{"a Job, complete", "-n port wait job/count --for=condition=Complete --timeout=60s", []string{"condition met"}},
		{"a Job's log", "-n port logs job/count", []string{"one two three"}},
		{"replace", "-n port replace --force --grace-period=1 -f %F", []string{"replaced"}},
		{"replaced, running", "-n port rollout status deployment/tavern --timeout=60s", []string{"successfully rolled out"}},
		{"a taint", "taint node one leak=yes:NoSchedule", []string{"tainted"}},
		{"no taint", "taint node one leak-", []string{"untainted"}},
		{"no more pods", "cordon one", []string{"node/one cordoned"}},
		{"no pods at all", "drain one --ignore-daemonsets --force --delete-emptydir-data --timeout=60s", []string{"evicting pod port/tavern-", "node/one drained"}},
		{"a cordoned node", "get nodes", []string{"Ready,SchedulingDisabled"}},
		{"pods wait", "-n port wait pods -l app=tavern --for=condition=PodScheduled=False --timeout=60s", []string{"condition met"}},
		{"pods again", "uncordon one", []string{"node/one uncordoned"}},
		{"pods again, running", "-n port rollout status deployment/tavern --timeout=60s", []string{"successfully rolled out"}},
		{"delete by file", "-n port delete -f %F --timeout=60s", []string{`deployment.apps "tavern" deleted`}},
		{"delete in the foreground", "-n port delete job count --cascade=foreground --timeout=60s", []string{`job.batch "count" deleted`}},
		{"delete a namespace with all in it", "delete namespace port --timeout=60s", []string{`namespace "port" deleted`}},
		{"nothing is left of it", "get all -n port", []string{"No resources found in port namespace"}},
	}
	for _, step := range steps {
		if step.name == "a Service" {
			k.checkPortForward()
		}
		ok := t.Run(step.name, func(t *testing.T) {
			out := k.run(step.args)
			for _, want := range step.want {
				if !strings.Contains(out, want) {
					t.Errorf("kubectl %s: wanted %q in\n%s", step.args, want, tail(out, 40))
				}
			}
		})
		if !ok {
			break
		}
	}
}

// sailorWithTar returns the folder of an image with the sailor under both of its names.
func sailorWithTar(c *cluster) string {
	c.t.Helper()
	folder := filepath.Dir(c.buildProgram("./sailor"))
	recipe := "FROM scratch\nCOPY sailor /sailor\nCOPY sailor /bin/tar\nENV PATH=/bin\nENTRYPOINT [\"/sailor\"]\n"
	if err := os.WriteFile(filepath.Join(folder, "Containerfile"), []byte(recipe), 0o600); err != nil {
		c.t.Fatal(err)
	}
	return folder
}

// kubectl is upstream's program or the bundled one.
type kubectl struct {
	*cluster
	command  []string
	manifest string
}

// invoke returns a command that runs kubectl.
func (k *kubectl) invoke(args ...string) *exec.Cmd {
	return k.tool(k.command[0], append(k.command[1:len(k.command):len(k.command)], args...)...)
}

// run returns the output of a command that may fail.
func (k *kubectl) run(line string) string {
	line, input, _ := strings.Cut(line, " < ")
	args := strings.Fields(line)
	for i, arg := range args {
		if arg == "%F" {
			args[i] = k.manifest
		}
	}
	cmd := k.invoke(args...)
	if input == "replicas" {
		cmd.Stdin = strings.NewReader(strings.ReplaceAll(tavern, "replicas: 2", "replicas: 5"))
	}
	out, _ := cmd.CombinedOutput()
	return string(out)
}

// checkPortForward reaches a pod through the API server while kubectl forwards the port.
func (k *kubectl) checkPortForward() {
	k.t.Helper()
	cmd := k.invoke("-n", "port", "port-forward", "deployment/tavern", "18080:8080")
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		k.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Signal(syscall.SIGINT); _ = cmd.Wait() }()
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || !strings.Contains(line, "Forwarding from 127.0.0.1:18080 -> 8080") {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		k.t.Fatalf("port-forward: %q, %v, %s", line, err, &complaints)
	}
	for range 3 {
		if body, err := k.get("http://127.0.0.1:18080/"); err != nil || !strings.HasPrefix(body, "tavern-") {
			k.t.Errorf("through the forwarded port: %q, %v", body, err)
		}
	}
}

// upstreamsKubectl returns the path of the conformance suite's kubectl, and builds it if it is
// missing.
func upstreamsKubectl(t *testing.T) string {
	t.Helper()
	dir := cmp.Or(os.Getenv("CONFORMANCE_BIN"), "../../.cache/conformance/bin")
	if out, err := exec.Command("../conformance/build.sh", dir, "kubectl").CombinedOutput(); err != nil {
		t.Fatalf("build upstream's kubectl: %v\n%s", err, out)
	}
	path, err := filepath.Abs(filepath.Join(dir, "kubectl"))
	if err != nil {
		t.Fatal(err)
	}
	return path
}
