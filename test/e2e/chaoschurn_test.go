package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// standing are the workloads that exist in all rounds.
const standing = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: crew}
spec:
  replicas: 1
  selector: {matchLabels: {app: crew}}
  template:
    metadata: {labels: {app: crew}}
    spec:
      terminationGracePeriodSeconds: 1
      securityContext: {fsGroup: 4711}
      initContainers:
      - {name: first, image: "test/sailor:v1", args: [put, /disk/first, aboard], volumeMounts: [{name: disk, mountPath: /disk}]}
      containers:
      - name: sailor
        image: test/sailor:v1
        env: [{name: POD_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
        readinessProbe: {httpGet: {path: /, port: 8080}, periodSeconds: 1, timeoutSeconds: 2}
        volumeMounts:
        - {name: disk, mountPath: /disk}
        - {name: disk, mountPath: /part, subPath: part}
        - {name: memory, mountPath: /memory}
        - {name: labels, mountPath: /labels}
      volumes:
      - {name: disk, emptyDir: {}}
      - {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
      - {name: labels, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}
---
apiVersion: v1
kind: Service
metadata: {name: crew}
spec: {selector: {app: crew}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: hold}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 32Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: anchor}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: sailor, image: "test/sailor:v1", volumeMounts: [{name: hold, mountPath: /hold}, {name: kept, mountPath: /kept}]}
  volumes: [{name: hold, persistentVolumeClaim: {claimName: hold}}, {name: kept, emptyDir: {}}]
---
`

// connect makes the client, whose connections begin in the machine's network.
func (n *nodeChaos) connect() {
	n.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", n.kubeconfig())
	if err != nil {
		n.t.Fatal(err)
	}
	config.QPS, config.Timeout, config.Dial = -1, 10*time.Second, n.dial
	if n.client, err = kubernetes.NewForConfig(config); err != nil {
		n.t.Fatal(err)
	}
}

// dial connects from the machine's network namespace. Its thread stays there, so it ends.
func (n *nodeChaos) dial(ctx context.Context, network, address string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread()
		var r result
		fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", n.space.pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(fd, unix.CLONE_NEWNET)
			_ = unix.Close(fd)
		}
		if r.err = err; err == nil {
			r.conn, r.err = (&net.Dialer{Timeout: 3 * time.Second}).DialContext(ctx, network, address)
		}
		done <- r
	}()
	r := <-done
	return r.conn, r.err
}

// ask sends a request to an address of the cluster and returns an error unless it is answered.
func (n *nodeChaos) ask(address string) error {
	client := http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{DialContext: n.dial, DisableKeepAlives: true}}
	resp, err := client.Get("http://" + address + "/")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}

// try repeats a change of the API until it succeeds: knarr may be down meanwhile. After a failure
// it does nothing more.
func (n *nodeChaos) try(what string, change func(ctx context.Context) error) {
	if n.failed != nil {
		return
	}
	err := n.until(90*time.Second, func() error {
		ctx, cancel := context.WithTimeout(n.t.Context(), 5*time.Second)
		defer cancel()
		return change(ctx)
	})
	if err != nil {
		n.failed = fmt.Errorf("%s: %w", what, err)
	}
}

func (n *nodeChaos) create(pod *corev1.Pod) {
	n.wanted[pod.Name] = pod.Spec.RestartPolicy != corev1.RestartPolicyNever
	n.try("create pod "+pod.Name, func(ctx context.Context) error {
		_, err := n.client.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil // an earlier attempt, whose answer was lost
		}
		return err
	})
}

func (n *nodeChaos) remove(name string, force bool) {
	delete(n.wanted, name)
	options := metav1.DeleteOptions{}
	if force {
		options.GracePeriodSeconds = new(int64)
	}
	n.try("delete pod "+name, func(ctx context.Context) error {
		err := n.client.CoreV1().Pods("default").Delete(ctx, name, options)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// scale sets the size of the deployment.
func (n *nodeChaos) scale(replicas int) {
	n.replicas = replicas
	patch := []byte(fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
	n.try("scale crew", func(ctx context.Context) error {
		_, err := n.client.AppsV1().Deployments("default").Patch(ctx, "crew", types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
}

// bare is a pod without an owner.
func bare(name, image string, args ...string) *corev1.Pod {
	second := int64(1)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: &second,
			Containers:                    []corev1.Container{{Name: "sailor", Image: image, Args: args}},
		},
	}
}

// withClaim mounts a claim at /data.
func withClaim(pod *corev1.Pod, claim string) *corev1.Pod {
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
	pod.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	return pod
}

// berth has a port of the host.
func berth(name string) *corev1.Pod {
	pod := bare(name, "test/sailor:v1")
	pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 8080, HostPort: 18080}}
	return pod
}

// makeClaim makes a claim of a class.
func (n *nodeChaos) makeClaim(name, class string) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &class,
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("16Mi")}},
	}}
	n.try("make claim "+name, func(ctx context.Context) error {
		_, err := n.client.CoreV1().PersistentVolumeClaims("default").Create(ctx, claim, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

func (n *nodeChaos) removeClaim(name string) {
	n.try("delete claim "+name, func(ctx context.Context) error {
		err := n.client.CoreV1().PersistentVolumeClaims("default").Delete(ctx, name, metav1.DeleteOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// churn changes the workloads of a round: always something that starts and something that ends, and
// what reaches the fault's point.
func (n *nodeChaos) churn(round int, f fault) {
	for _, name := range slices.Sorted(maps.Keys(n.wanted)) {
		if name != "anchor" {
			n.remove(name, n.random.IntN(3) == 0)
		}
	}
	size := n.random.IntN(4)
	if size == n.replicas {
		size = (size + 1) % 4
	}
	n.scale(size)
	writer := fmt.Sprintf("writer-%d", round)
	word := fmt.Sprintf("word-%d-%d", round, n.random.Uint32())
	n.create(withClaim(bare(writer, "test/sailor:v1", "put", fmt.Sprintf("/data/%d", round), word), "hold"))
	n.written[fmt.Sprint(round)] = word
	if n.random.IntN(2) == 0 {
		n.create(berth(fmt.Sprintf("berth-%d", round)))
	}
	if n.random.IntN(4) == 0 {
		n.create(bare(fmt.Sprintf("faller-%d", round), "test/sailor:v1", "fall"))
	}
	if strings.HasPrefix(f.point, "local-") || n.random.IntN(4) == 0 {
		n.image(round)
	}
	if strings.HasPrefix(f.point, "image-") || n.random.IntN(6) == 0 {
		n.create(n.puller(round))
	}
	if n.random.IntN(2) == 0 {
		n.recycle()
	}
}

// recycle deletes one pod of the deployment, which is replaced.
func (n *nodeChaos) recycle() {
	n.try("delete a pod of crew", func(ctx context.Context) error {
		pods, err := n.client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=crew"})
		if err != nil || len(pods.Items) == 0 {
			return err
		}
		options := metav1.DeleteOptions{}
		if n.random.IntN(2) == 0 {
			options.GracePeriodSeconds = new(int64)
		}
		err = n.client.CoreV1().Pods("default").Delete(ctx, pods.Items[0].Name, options)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// image makes a volume of class "image", or ends the one of an earlier round.
func (n *nodeChaos) image(round int) {
	if n.loops {
		if n.claim != "" {
			n.removeClaim(n.claim)
		}
		n.claim = fmt.Sprintf("chest-%d", round)
		n.makeClaim(n.claim, "image")
		n.create(withClaim(bare(fmt.Sprintf("chest-%d", round), "test/sailor:v1", "put", "/data/word", n.claim), n.claim))
	}
}

// settled returns an error unless all pods run that should, and no other pods exist.
func (n *nodeChaos) settled() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	pods, err := n.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	seen, crew := map[string]bool{}, 0
	for i := range pods.Items {
		p := &pods.Items[i]
		runs, known := n.wanted[p.Name]
		if p.Labels["app"] == "crew" {
			runs, known = true, true
			crew++
		}
		switch {
		case p.DeletionTimestamp != nil || !known:
			return fmt.Errorf("pod %s is not gone", p.Name)
		case strings.HasPrefix(p.Name, "faller"):
			if len(p.Status.ContainerStatuses) == 0 || p.Status.ContainerStatuses[0].RestartCount == 0 {
				return fmt.Errorf("pod %s has not been restarted", p.Name)
			}
		case !runs && n.mayFail && p.Status.Phase == corev1.PodFailed:
			delete(n.written, strings.TrimPrefix(p.Name, "writer-"))
		case !runs && p.Status.Phase != corev1.PodSucceeded:
			return fmt.Errorf("pod %s is %s, want Succeeded", p.Name, p.Status.Phase)
		case runs && !ready(p):
			return fmt.Errorf("pod %s is %s, not ready", p.Name, p.Status.Phase)
		}
		seen[p.Name] = true
	}
	for name := range n.wanted {
		if !seen[name] {
			return fmt.Errorf("pod %s is lost", name)
		}
	}
	if crew != n.replicas {
		return fmt.Errorf("the deployment has %d pods, want %d", crew, n.replicas)
	}
	return n.answering(pods.Items)
}

func ready(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue && p.Status.Phase == corev1.PodRunning
		}
	}
	return false
}

// answering returns an error unless each running pod answers, and also the Service and the host
// port.
func (n *nodeChaos) answering(pods []corev1.Pod) error {
	for i := range pods {
		p := &pods[i]
		if !ready(p) {
			continue
		}
		if err := n.ask(net.JoinHostPort(p.Status.PodIP, "8080")); err != nil {
			return fmt.Errorf("pod %s: %w", p.Name, err)
		}
		if strings.HasPrefix(p.Name, "berth") {
			if err := n.ask("192.168.88.1:18080"); err != nil {
				return fmt.Errorf("the host port of %s: %w", p.Name, err)
			}
		}
	}
	if n.replicas > 0 {
		if err := n.ask(n.service + ":80"); err != nil {
			return fmt.Errorf("the Service: %w", err)
		}
	}
	return nil
}

// kept fails the test if a volume has lost content, or if the anchor's container was restarted
// without a fault of its shim.
func (n *nodeChaos) kept() error {
	for name, word := range n.written {
		data, err := os.ReadFile(filepath.Join(n.dir, "volumes", n.volume, "data", name))
		if err != nil || strings.TrimSpace(string(data)) != word {
			return fmt.Errorf("the volume has %q (%v) in %s, want %q", data, err, name, word)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	anchor, err := n.client.CoreV1().Pods("default").Get(ctx, "anchor", metav1.GetOptions{})
	if err != nil {
		return err
	}
	data, err := os.ReadFile(filepath.Join(n.dir, "kubelet/pods", string(anchor.UID), "volumes/kubernetes.io~empty-dir/kept/word"))
	if err != nil || string(data) != "kept" {
		return fmt.Errorf("the anchor's emptyDir has %q: %v", data, err)
	}
	state, err := json.Marshal(anchor.Status.ContainerStatuses)
	if err != nil || len(anchor.Status.ContainerStatuses) != 1 {
		return fmt.Errorf("the anchor's containers: %s, %v", state, err)
	}
	id := anchor.Status.ContainerStatuses[0].ContainerID
	if id != n.anchorID && n.shimsHit == 0 {
		return fmt.Errorf("the anchor's container was restarted: %s", state)
	}
	n.anchorID, n.shimsHit = id, max(0, n.shimsHit-1)
	return nil
}
