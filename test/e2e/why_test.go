package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

// situation is a situation with a known root cause.
type situation struct {
	title, question, cause string
	says                   string // text of the answer
	objects                string // a manifest; empty if another situation makes it
}

// podManifest is the manifest of a pod with one container, from fields in the flow style of YAML.
func podManifest(name, container, spec string) string {
	if spec != "" {
		spec += ", "
	}
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s, labels: {app: %s}}\n"+
		"spec: {terminationGracePeriodSeconds: 1, %scontainers: [{name: c, image: e2e/sailor:v1, %s}]}\n", name, name, spec, container)
}

// privateRegistry asks for credentials; images below gone/ do not exist.
const privateRegistry = "192.168.88.1:5001"

// templateOf is a pod template of workloads.
const templateOf = "template: {metadata: {labels: {app: %s}}, spec: {terminationGracePeriodSeconds: 1, %scontainers: [{name: c, image: e2e/sailor:v1%s}]}}"

func deploymentManifest(name, namespace, container string) string {
	return fmt.Sprintf("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: %s, namespace: %s}\nspec: {replicas: 1, selector: {matchLabels: {app: %s}}, "+templateOf+"}\n",
		name, namespace, name, name, "", container)
}

// situations are made all at once, and judged one after the other.
var situations = []situation{
	{"a Secret of a volume is missing", "pod/no-secret", "secret-missing", "kubectl create secret", podManifest("no-secret", "volumeMounts: [{name: s, mountPath: /s}]", "volumes: [{name: s, secret: {secretName: lost}}]")},
	{"a Secret of a variable is missing", "pod/no-secret-env", "secret-missing", "lost", podManifest("no-secret-env", "envFrom: [{secretRef: {name: lost}}]", "")},
	{"a ConfigMap has not the key of a variable", "pod/no-key", "pod-config-key-missing", "its keys: colour", podManifest("no-key", "env: [{name: SIZE, valueFrom: {configMapKeyRef: {name: paint, key: size}}}]", "") +
		"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: paint}\ndata: {colour: red}\n"},
	{"an image does not exist", "pod/no-image", "image-not-found", "push the image", strings.Replace(podManifest("no-image", "imagePullPolicy: Always", ""), "e2e/sailor:v1", privateRegistry+"/gone/app:v1", 1)},
	{"the pull secret of a private image is missing", "pod/no-pull-secret", "secret-missing", "pull secret", strings.Replace(podManifest("no-pull-secret", "imagePullPolicy: Always", "imagePullSecrets: [{name: keys}]"), "e2e/sailor:v1", privateRegistry+"/private/app:v1", 1)},
	{"a registry asks for credentials", "pod/no-credentials", "image-denied", "imagePullSecrets", strings.Replace(podManifest("no-credentials", "imagePullPolicy: Always", ""), "e2e/sailor:v1", privateRegistry+"/private/app:v1", 1)},
	{"a command does not exist", "pod/no-command", "container-command-not-found", "Correct command", podManifest("no-command", "command: [/bin/missing]", "")},
	{"a container exits", "pod/falls", "container-crash", "falling", podManifest("falls", "args: [fall]", "")},
	{"a container ends without a fault", "pod/ends", "container-completes", "foreground", podManifest("ends", "args: [say, done]", "")},
	{"a variable is missing", "pod/needs", "container-configuration", "DATABASE_URL", podManifest("needs", "args: [need, DATABASE_URL]", "")},
	{"a folder does not exist", "pod/no-folder", "container-file-missing", "/proc/none", podManifest("no-folder", "args: [put, /proc/none/x, text]", "")},
	{"the memory limit is too low", "pod/hungry", "container-out-of-memory", "its limit is 32Mi", podManifest("hungry", "args: [hold, '200'], resources: {limits: {memory: 32Mi}}", "")},
	{"a liveness probe fails", "pod/unwell", "container-liveness-probe", "probe", podManifest("unwell", "livenessProbe: {httpGet: {path: /, port: 9999}, periodSeconds: 1, failureThreshold: 1}", "")},
	{"a readiness probe fails", "pod/unready", "container-readiness-probe", "probe", podManifest("unready", "readinessProbe: {httpGet: {path: /, port: 9999}, periodSeconds: 1}", "")},
	{"a startup probe fails", "pod/slow", "container-startup-probe", "probe", podManifest("slow", "startupProbe: {tcpSocket: {port: 9999}, periodSeconds: 1, failureThreshold: 2}", "")},
	{"an init container exits", "pod/init", "container-crash", "falling", podManifest("init", "args: [serve]", "initContainers: [{name: first, image: 'e2e/sailor:v1', args: [fall]}]")},
	{"a container must not run as root", "pod/rootless", "container-run-as-non-root", "runAsUser", podManifest("rootless", "securityContext: {runAsNonRoot: true}", "")},
	{"the root file system is read-only", "pod/frozen", "container-read-only-file-system", "emptyDir", podManifest("frozen", "args: [put, /state, text], securityContext: {readOnlyRootFilesystem: true}", "")},
	{"a port is in use", "pod/twins", "container-port-in-use", ":8080", podManifest("twins", "args: [serve]}, {name: d, image: 'e2e/sailor:v1', args: [serve]", "")},
	{"a file may not be written", "pod/foreign", "container-file-permission", "fsGroup", podManifest("foreign", "args: [put, /state, text], securityContext: {runAsUser: 65534}", "")},
	{"a postStart hook fails", "pod/hook", "container-post-start-hook", "postStart", podManifest("hook", "lifecycle: {postStart: {exec: {command: [/sailor, fall]}}}", "")},
	{"a volume is larger than its limit", "pod/flood", "pod-evicted", "limit", podManifest("flood", "args: [fill, /data/x, '8'], volumeMounts: [{name: d, mountPath: /data}]", "volumes: [{name: d, emptyDir: {sizeLimit: 1Mi}}], restartPolicy: Always")},
	{"a pod fits on no node", "pod/huge", "pod-cpu", "Ask for", podManifest("huge", "resources: {requests: {cpu: '900'}}", "")},
	{"a host port is in use", "pod/port-b", "pod-host-port", "pod/port-a", podManifest("port-a", "ports: [{containerPort: 8080, hostPort: 8099}]", "nodeName: one") + "---\n" +
		podManifest("port-b", "ports: [{containerPort: 8080, hostPort: 8099}]", "nodeSelector: {kubernetes.io/hostname: one}, tolerations: [{key: node.kubernetes.io/memory-pressure, operator: Exists}]")},
	{"a claim names a class that does not exist", "pod/claims", "storageclass-missing", "local", podManifest("claims", "volumeMounts: [{name: d, mountPath: /data}]", "volumes: [{name: d, persistentVolumeClaim: {claimName: data}}]") +
		"---\napiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data}\nspec: {storageClassName: fast, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}\n"},
	{"a Service names a port that no pod has", "svc/wrong-port", "service-port-name", "http", podManifest("quay", "ports: [{name: web, containerPort: 8080}]", "") +
		"---\napiVersion: v1\nkind: Service\nmetadata: {name: wrong-port}\nspec: {selector: {app: quay}, ports: [{port: 80, targetPort: http}]}\n"},
	{"a Service selects nothing", "svc/wrong-selector", "service-selects-nothing", "matches no pod", "apiVersion: v1\nkind: Service\nmetadata: {name: wrong-selector}\nspec: {selector: {app: kway}, ports: [{port: 80}]}\n"},
	{"the pods of a Service crash", "svc/falls", "container-crash", "falling", "apiVersion: v1\nkind: Service\nmetadata: {name: falls}\nspec: {selector: {app: falls}, ports: [{port: 80}]}\n"},
	{"a Job reaches its backoff limit", "job/work", "container-crash", "backoffLimit is 0", fmt.Sprintf("apiVersion: batch/v1\nkind: Job\nmetadata: {name: work}\nspec: {backoffLimit: 0, "+templateOf+"}\n", "work", "restartPolicy: Never, ", ", args: [fall]")},
	{"a quota is used up", "deploy/many", "quota-exceeded", "Raise the quota", "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: none, namespace: small}\nspec: {hard: {pods: '0'}}\n---\n" + deploymentManifest("many", "small", "")},
	{"a webhook without a server", "deploy/checked", "service-missing", "webhook", `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: guard}
webhooks:
- name: guard.example.com
  clientConfig: {service: {name: guard, namespace: guarded}}
  rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: guarded}}
  admissionReviewVersions: [v1]
  sideEffects: None
---
` + deploymentManifest("checked", "guarded", "")},
	{"Pod Security forbids a pod", "deploy/host", "pod-security", "baseline", deploymentManifest("host", "safe", ", securityContext: {privileged: true}")},
	{"a finalizer keeps an object", "cm/kept", "deletion-finalizer", "example.com/nobody", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kept, finalizers: [example.com/nobody]}\n"},
	{"a preStop hook does not end", "pod/lingers", "deletion-pod-grace", "preStop", "apiVersion: v1\nkind: Pod\nmetadata: {name: lingers}\nspec: {terminationGracePeriodSeconds: 600, containers: [{name: c, image: e2e/sailor:v1, lifecycle: {preStop: {exec: {command: [/sailor, count]}}}}]}\n"},
	{"a custom resource is not ready", "widgets/east", "resource-condition", "the hull leaks", ""},
	{"a node does not report", "node/west", "node-unreachable", "lease", ""},
	{"a pod is on a node that does not report", "pod/stranded", "node-unreachable", "node/west", ""},
	{"a node is short of memory", "node/short", "node-pressure", "memory", ""},
	{"a node short of memory evicts a pod", "pod/crowded", "node-pressure", "node/short", podManifest("crowded", "", "nodeName: short")},
	{"a policy drops packets", "deny pod/pirate pod/quay --port 8080", "network-policy-ingress", "networkpolicy/quay", podManifest("pirate", "args: [serve]", "") +
		"---\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: quay}\nspec: {podSelector: {matchLabels: {app: quay}}, ingress: [{from: [{podSelector: {matchLabels: {app: friend}}}]}]}\n"},
	{"a request lacks a rule", "deny --as ann list secrets", "rbac-not-bound", "kubectl create rolebinding", ""},
}

const boats = `
apiVersion: v1
kind: Namespace
metadata: {name: small}
---
apiVersion: v1
kind: Namespace
metadata: {name: guarded}
---
apiVersion: v1
kind: Namespace
metadata: {name: safe, labels: {pod-security.kubernetes.io/enforce: baseline}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`

const leakyBoat = `
apiVersion: example.com/v1
kind: Widget
metadata: {name: east}
status: {conditions: [{type: Ready, status: "False", reason: Leaks, message: the hull leaks, lastTransitionTime: "2020-01-01T00:00:00Z"}]}
`

// whyAnswer is the part of `knarr why -o json` that a test reads.
type whyAnswer struct {
	RootCauses []struct {
		Cause, Remedy string
	}
}

// why asks, and returns the first root cause, its remedy and the text of the answer.
func (c *cluster) why(question string) (cause, remedy, text string, err error) {
	args := append([]string{"why", "--data-dir", c.dir}, strings.Fields(question)...)
	out, err := c.inside(binary, append(args, "-o", "json")...).Output()
	var status *exec.ExitError
	if err != nil && (!errors.As(err, &status) || status.ExitCode() != 1) {
		return "", "", "", err
	}
	var answer whyAnswer
	if err := json.Unmarshal(out, &answer); err != nil {
		return "", "", "", fmt.Errorf("%w: %s", err, out)
	}
	if len(answer.RootCauses) == 0 {
		return "nothing", "", "", nil
	}
	shown, _ := c.inside(binary, args...).CombinedOutput()
	return answer.RootCauses[0].Cause, answer.RootCauses[0].Remedy, string(shown), nil
}

// TestWhyNamesTheFaultsOfRealContainers makes faults on one cluster. `knarr why` must name each
// root cause and a remedy.
func TestWhyNamesTheFaultsOfRealContainers(t *testing.T) {
	t.Parallel()
	f := &fleet{lan: newLAN(t), cluster: &cluster{newMachine(t, "one")}}
	f.plug(f.machine)
	f.serveDenials()
	f.start("up", "--advertise-address", f.address(f.machine), "--node-monitor-grace-period", "10s")
	f.readToken()
	f.addWorker("west")
	f.addShortWorker("short")
	f.loadProgram("e2e/sailor:v1", "./sailor")
	f.apply(boats)
	f.kubectl("wait", "--for=create", "serviceaccount/default", "-n", "small", "--timeout=60s")
	f.apply(strings.Replace(podManifest("stranded", "args: [serve]", "nodeName: west"), "e2e/sailor:v1", "example.invalid/none", 1))
	west := f.workers[0]
	west.crash()
	f.waitReady(west, "Unknown")
	f.kubectl("wait", "--for=condition=MemoryPressure", "node/short", "--timeout=60s")
	var manifest strings.Builder
	all := slices.Concat(situations, f.tlsSituations())
	for _, x := range all {
		if x.objects != "" {
			manifest.WriteString("---\n" + x.objects)
		}
	}
	manifest.WriteString("---" + leakyBoat)
	f.eventually(20*time.Second, "the objects are made", func() error {
		out, err := f.tryKubectl(manifest.String(), "apply", "-f", "-")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
	f.kubectl("delete", "cm", "kept", "--wait=false")
	f.kubectl("wait", "--for=condition=Ready", "pod/lingers", "pod/quay", "pod/pirate", "--timeout=60s")
	f.kubectl("delete", "pod", "lingers", "--wait=false")
	quay := f.kubectl("get", "pod", "quay", "-o", "jsonpath={.status.podIP}")
	f.eventually(20*time.Second, "the policy drops the pirate's packets", func() error {
		if out, err := f.tryKubectl("", "exec", "pirate", "--", "/sailor", "fetch", "http://"+quay+":8080"); err == nil {
			return fmt.Errorf("it gets %s", out)
		}
		return nil
	})
	for _, x := range all {
		t.Run(x.title, func(t *testing.T) {
			var cause, remedy, text string
			var err error
			for end := time.Now().Add(40 * time.Second); ; time.Sleep(100 * time.Millisecond) {
				question := x.question
				for _, namespace := range []string{"small", "guarded", "safe"} {
					if strings.Contains(x.objects, "namespace: "+namespace) {
						question += " -n " + namespace
					}
				}
				cause, remedy, text, err = f.why(question)
				if err == nil && cause == x.cause && strings.Contains(text, x.says) || time.Now().After(end) {
					break
				}
			}
			t.Log("\n" + text)
			switch {
			case err != nil:
				t.Fatal(err)
			case cause != x.cause:
				t.Errorf("the root cause is %s, not %s", cause, x.cause)
			case !strings.Contains(text, x.says):
				t.Errorf("the answer does not say %q", x.says)
			case remedy == "":
				t.Error("no remedy")
			}
			for line := range strings.Lines(text) {
				if utf8.RuneCountInString(line) > 101 {
					t.Errorf("a line of %d columns: %s", utf8.RuneCountInString(line), line)
				}
			}
		})
	}
	f.checkSweep(all)
}

// addShortWorker joins a node that has less memory than it must keep free.
func (f *fleet) addShortWorker(name string) {
	f.t.Helper()
	w := newMachine(f.t, name)
	w.withoutAnyDisk = true
	f.workers = append(f.workers, w)
	f.plug(w)
	w.start("node", "--advertise-address", f.address(w), "--join", "https://"+f.address(f.machine)+":6443", "--token", f.token,
		"--eviction-hard", "memory.available<1Pi", "--image-gc-high-threshold", "100")
}

// checkSweep asks about the whole cluster until its answers had the root causes of all objects that
// it examines. A container that crashes runs at times.
func (f *fleet) checkSweep(all []situation) {
	f.t.Helper()
	found := map[string]bool{}
	f.eventually(40*time.Second, "the answers about the cluster have all root causes", func() error {
		out, _ := f.inside(binary, "why", "--data-dir", f.dir, "-A", "-o", "json").Output()
		var answer whyAnswer
		if err := json.Unmarshal(out, &answer); err != nil {
			return fmt.Errorf("%w: %s", err, tail(string(out), 20))
		}
		for _, r := range answer.RootCauses {
			found[r.Cause] = true
		}
		for _, x := range all {
			kind, _, _ := strings.Cut(x.question, "/")
			if !found[x.cause] && !strings.HasPrefix(x.question, "deny ") && kind != "cm" && kind != "secret" {
				return fmt.Errorf("%s: the root cause %s is missing", x.title, x.cause)
			}
		}
		return nil
	})
}

// serveDenials serves a registry on the machine that asks for credentials.
func (f *fleet) serveDenials() {
	f.t.Helper()
	listener, err := f.cluster.listen(privateRegistry)
	if err != nil {
		f.t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/v2/gone/"):
			http.Error(w, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}`, http.StatusNotFound)
		case r.URL.Path != "/v2/":
			w.Header().Set("WWW-Authenticate", `Basic realm="private"`)
			http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)
		}
	})}
	go func() { _ = server.Serve(listener) }()
	f.t.Cleanup(func() { _ = server.Close() })
	f.cluster.usePlainRegistry(privateRegistry)
}
