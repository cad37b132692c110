package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodeChecks need running pods.
var nodeChecks = []check{
	{name: "a Deployment rolls out, back, and scales", run: rollout, node: true},
	{name: "a StatefulSet's pods come in order, with their claims", run: ordered, node: true},
	{name: "a DaemonSet has a pod on the node", run: daemon, node: true},
	{name: "a Job is completed, and deleted after its time to live", run: jobDone, node: true},
	{name: "a CronJob runs", run: cron, node: true},
	{name: "a Service has EndpointSlices and answers at its address", run: service, node: true},
	{name: "an autoscaler holds its Deployment within bounds", run: autoscaler, node: true},
	{name: "an eviction is allowed if the budget permits it", run: evicted, node: true},
	{name: "a pod sees its token, settings and itself", run: volumesSeen, node: true},
	{name: "logs, exec and port-forward pass through the API server", run: streams, node: true},
	{name: "Events describe a pod's life", run: events, node: true},
	{name: "a more important pod preempts another", run: preempted, node: true},
	{name: "a failed container is restarted", run: restarted, node: true},
	{name: "owners are deleted in the foreground", run: foreground, node: true},
	{name: "an ephemeral volume has a claim owned by the pod", run: ephemeral, node: true},
	{name: "a device serves the claims of two pods in turn", run: devices, node: true},
}

// nodeReady waits for the node, and approves the request for its serving certificate as an
// administrator.
func nodeReady(ctx context.Context, b *bench) error {
	return b.eventually(ctx, func() error {
		if err := b.alive(); err != nil {
			return err
		}
		requests, err := b.kubectl(ctx, "", "get", "csr", "-o", `jsonpath={range .items[?(@.spec.signerName=="kubernetes.io/kubelet-serving")]}{.metadata.name} {end}`)
		if err != nil {
			return err
		}
		if names := strings.Fields(requests); len(names) > 0 {
			if _, err := b.kubectl(ctx, "", append([]string{"certificate", "approve"}, names...)...); err != nil {
				return err
			}
		} else if b.node == theirs {
			return errors.New("the kubelet has not requested its serving certificate")
		}
		node, err := b.set.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		ready := false
		for _, c := range node.Status.Conditions {
			ready = ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}
		if !ready || node.Spec.PodCIDR == "" || len(node.Spec.Taints) > 0 {
			return fmt.Errorf("node: podCIDR %q, taints %v, conditions %v", node.Spec.PodCIDR, node.Spec.Taints, node.Status.Conditions)
		}
		_, err = b.set.CoordinationV1().Leases("kube-node-lease").Get(ctx, nodeName, metav1.GetOptions{})
		return err
	})
}

// deployment returns a Deployment of a server.
func deployment(name string, replicas int) string {
	return strings.NewReplacer("NAME", name, "REPLICAS", fmt.Sprint(replicas), "IMAGE", podImage).Replace(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME}
spec:
  replicas: REPLICAS
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - {name: a, image: "IMAGE", imagePullPolicy: Never, ports: [{name: http, containerPort: 8080}], readinessProbe: {httpGet: {path: /, port: http}, periodSeconds: 1}}
`)
}

// podWith returns a pod of the image with a command.
func podWith(name, spec string, args ...string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: %s}}
spec: {terminationGracePeriodSeconds: 1, %s containers: [{name: a, image: "%s", imagePullPolicy: Never, args: ["%s"]}]}
`, name, name, spec, podImage, strings.Join(args, `", "`))
}

func evicted(ctx context.Context, b *bench, namespace string) error {
	if err := b.apply(ctx, namespace, deployment("web", 2)+`---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec: {maxUnavailable: 1, selector: {matchLabels: {app: web}}}
`); err != nil {
		return err
	}
	if err := b.becomes(ctx, namespace, "pdb/web", "{.status.currentHealthy} {.status.disruptionsAllowed}", "2 1"); err != nil {
		return err
	}
	pods, err := b.kubectl(ctx, "", "get", "pods", "-n", namespace, "-o", "jsonpath={.items[*].metadata.name}")
	if err != nil {
		return err
	}
	victim := strings.Fields(pods)[0]
	body := fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q}}`, victim)
	if _, err := b.kubectl(ctx, body, "create", "--raw", "/api/v1/namespaces/"+namespace+"/pods/"+victim+"/eviction", "-f", "-"); err != nil {
		return err
	}
	if err := b.gone(ctx, namespace, "pod/"+victim); err != nil {
		return err
	}
	return b.becomes(ctx, namespace, "pdb/web", "{.status.currentHealthy} {.status.disruptionsAllowed}", "2 1")
}

func volumesSeen(ctx context.Context, b *bench, namespace string) error {
	if err := b.apply(ctx, namespace, withImage(`
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: red}
---
apiVersion: v1
kind: Secret
metadata: {name: word}
stringData: {open: sesame}
---
apiVersion: v1
kind: Pod
metadata: {name: parrot}
spec:
  restartPolicy: Never
  containers:
  - name: a
    image: "IMAGE"
    imagePullPolicy: Never
    args: [say, "@/var/run/secrets/kubernetes.io/serviceaccount/namespace", "@/settings/colour", "@/word/open", "@/self/name", "$(NODE)", "@/var/run/secrets/kubernetes.io/serviceaccount/token"]
    env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]
    volumeMounts: [{name: settings, mountPath: /settings}, {name: word, mountPath: /word}, {name: self, mountPath: /self}]
  volumes: [{name: settings, configMap: {name: settings}}, {name: word, secret: {secretName: word}}, {name: self, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}]
`)); err != nil {
		return err
	}
	if err := b.becomes(ctx, namespace, "pod/parrot", "{.status.phase}", "Succeeded"); err != nil {
		return err
	}
	said, err := b.kubectl(ctx, "", "logs", "-n", namespace, "parrot")
	if err != nil {
		return err
	}
	for _, wanted := range []string{namespace, "red", "sesame", "parrot", nodeName, "ey"} {
		if !strings.Contains(said, wanted) {
			return fmt.Errorf("the pod printed %q, without %q", said, wanted)
		}
	}
	return nil
}

func streams(ctx context.Context, b *bench, namespace string) error {
	if err := b.apply(ctx, namespace, podWith("parrot", "", "serve")); err != nil {
		return err
	}
	if err := b.becomes(ctx, namespace, "pod/parrot", "{.status.phase}", "Running"); err != nil {
		return err
	}
	for _, try := range []struct {
		args []string
		text string
	}{
		{[]string{"logs", "parrot"}, "listening"},
		{[]string{"exec", "parrot", "--", "/sailor", "say", "ahoy"}, "ahoy"},
		{[]string{"exec", "parrot", "--", "/sailor", "env", "HOSTNAME"}, "parrot"},
		{[]string{"get", "--raw", "/api/v1/namespaces/" + namespace + "/pods/parrot:8080/proxy/"}, "parrot"},
		{[]string{"get", "--raw", "/api/v1/nodes/" + nodeName + "/proxy/healthz"}, "ok"},
	} {
		if err := b.eventually(ctx, func() error {
			out, err := b.kubectl(ctx, "", append([]string{"-n", namespace}, try.args...)...)
			if err == nil && !strings.Contains(out, try.text) {
				err = fmt.Errorf("kubectl %s: %q", strings.Join(try.args, " "), out)
			}
			return err
		}); err != nil {
			return err
		}
	}
	forwarding, stop := context.WithCancel(ctx)
	port := freePort()
	ended := make(chan error, 1)
	go func() {
		_, err := b.kubectl(forwarding, "", "port-forward", "-n", namespace, "parrot", fmt.Sprintf("%d:8080", port))
		ended <- err
	}()
	err := b.eventually(ctx, func() error { return answers(ctx, fmt.Sprintf("http://127.0.0.1:%d/", port), "parrot") })
	stop()
	if ended := <-ended; err != nil {
		err = errors.Join(err, ended)
	}
	return err
}

func events(ctx context.Context, b *bench, namespace string) error {
	if err := b.apply(ctx, namespace, podWith("p", "restartPolicy: Never,", "say", "done")); err != nil {
		return err
	}
	return b.eventually(ctx, func() error {
		told, err := b.kubectl(ctx, "", "get", "events", "-n", namespace, "-o", "jsonpath={.items[*].reason}")
		for _, reason := range []string{"Scheduled", "Pulled", "Created", "Started"} {
			if err == nil && !strings.Contains(told, reason) {
				err = fmt.Errorf("events: %q, without %s", told, reason)
			}
		}
		return err
	})
}

// preempted fills most of the node's processors with a pod, and then creates a more important one.
func preempted(ctx context.Context, b *bench, namespace string) error {
	node, err := b.set.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	most := fmt.Sprintf("%dm", node.Status.Allocatable.Cpu().MilliValue()*6/10)
	big := func(name, class string) string {
		return strings.Replace(podWith(name, class, "serve"), "imagePullPolicy", "resources: {requests: {cpu: "+most+"}}, imagePullPolicy", 1)
	}
	if err := b.apply(ctx, namespace, `
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: `+namespace+`}
value: 1000
---`+big("low", "")); err != nil {
		return err
	}
	if err := b.becomes(ctx, namespace, "pod/low", "{.status.phase}", "Running"); err != nil {
		return err
	}
	if err := b.apply(ctx, namespace, big("high", "priorityClassName: "+namespace+",")); err != nil {
		return err
	}
	if err := b.becomes(ctx, namespace, "pod/high", "{.status.phase}", "Running"); err != nil {
		return err
	}
	return b.gone(ctx, namespace, "pod/low")
}

func restarted(ctx context.Context, b *bench, namespace string) error {
	if err := b.apply(ctx, namespace, podWith("p", "", "no-such-command")); err != nil {
		return err
	}
	return b.eventually(ctx, func() error {
		got, err := b.field(ctx, namespace, "pod/p", "{.status.containerStatuses[0].restartCount} {.status.containerStatuses[0].state.waiting.reason}")
		if err == nil && (strings.HasPrefix(got, "0") || !strings.HasSuffix(got, "CrashLoopBackOff")) {
			err = fmt.Errorf("restarts and reason: %q", got)
		}
		return err
	})
}

func foreground(ctx context.Context, b *bench, namespace string) error {
	if err := b.apply(ctx, namespace, deployment("web", 1)); err != nil {
		return err
	}
	if err := b.becomes(ctx, namespace, "deployment/web", "{.status.availableReplicas}", "1"); err != nil {
		return err
	}
	if _, err := b.kubectl(ctx, "", "delete", "-n", namespace, "deployment/web", "--cascade=foreground", "--wait=false"); err != nil {
		return err
	}
	if err := b.gone(ctx, namespace, "deployment/web"); err != nil {
		return err
	}
	left, err := b.kubectl(ctx, "", "get", "rs,pods", "-n", namespace, "-o", "name")
	if err == nil && left != "" {
		err = fmt.Errorf("left behind: %s", left)
	}
	return err
}

func ephemeral(ctx context.Context, b *bench, namespace string) error {
	volume := "volumes: [{name: e, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], storageClassName: " + namespace + ", resources: {requests: {storage: 1Mi}}}}}}],"
	if err := b.apply(ctx, namespace, volumes(namespace, 1)+podWith("p", volume, "serve")); err != nil {
		return err
	}
	if err := b.becomes(ctx, namespace, "pod/p", "{.status.phase}", "Running"); err != nil {
		return err
	}
	if err := b.becomes(ctx, namespace, "pvc/p-e", "{.status.phase}", "Bound"); err != nil {
		return err
	}
	if _, err := b.kubectl(ctx, "", "delete", "-n", namespace, "pod/p"); err != nil {
		return err
	}
	return b.gone(ctx, namespace, "pvc/p-e")
}

// devices plays a driver with objects alone: its device is on all nodes, and no node agent knows
// the driver. So the check only shows which pod gets the device.
func devices(ctx context.Context, b *bench, namespace string) error {
	if err := b.apply(ctx, namespace, `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec: {selectors: [{cel: {expression: device.driver == "gpu.example.com"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: rack}
spec: {driver: gpu.example.com, allNodes: true, pool: {name: rack, generation: 1, resourceSliceCount: 1}, devices: [{name: one}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: t}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu.example.com}}]}}}
`); err != nil {
		return err
	}
	const pod = `
apiVersion: v1
kind: Pod
metadata: {name: NAME}
spec: {terminationGracePeriodSeconds: 0, resourceClaims: [{name: r, resourceClaimTemplateName: t}], containers: [{name: a, image: x, resources: {claims: [{name: r}]}}]}
`
	if err := b.apply(ctx, namespace, strings.Replace(pod, "NAME", "first", 1)); err != nil {
		return err
	}
	claim, err := b.claimOf(ctx, namespace)
	if err != nil {
		return err
	}
	const given = "{.status.allocation.devices.results[0].device}{'/'}{.status.reservedFor[0].name}{'/'}{.metadata.finalizers[0]}"
	if err := b.becomes(ctx, namespace, "resourceclaim/"+claim, given, "one/first/resource.kubernetes.io/delete-protection"); err != nil {
		return err
	}
	if err := b.becomes(ctx, namespace, "pod/first", `{.status.conditions[?(@.type=="PodScheduled")].status}`, "True"); err != nil {
		return err
	}
	if err := b.apply(ctx, namespace, strings.Replace(pod, "NAME", "second", 1)); err != nil {
		return err
	}
	if err := b.becomes(ctx, namespace, "pod/second", `{.status.conditions[?(@.type=="PodScheduled")].message}`,
		"0/1 nodes are available: 1 cannot allocate all claims. still not schedulable, preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."); err != nil {
		return err
	}
	if _, err := b.kubectl(ctx, "", "delete", "pod", "first", "-n", namespace, "--wait=false"); err != nil {
		return err
	}
	if err := b.becomes(ctx, namespace, "pod/second", `{.status.conditions[?(@.type=="PodScheduled")].status}`, "True"); err != nil {
		return err
	}
	_, err = b.kubectl(ctx, "", "delete", "resourceslice/rack", "deviceclass/gpu.example.com")
	return err
}
