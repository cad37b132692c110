package wasm_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/knarr-project/knarr/internal/image/registry"
	"github.com/knarr-project/knarr/internal/scheduler/wasm"
	"github.com/knarr-project/knarr/internal/schedulerplugin"
	"github.com/knarr-project/knarr/knarrtest"
)

// harness is a cluster with two hollow nodes and plugins.
type harness struct {
	t       *testing.T
	cluster *knarrtest.Cluster
	client  kubernetes.Interface
	plugins dynamic.ResourceInterface
}

func start(t *testing.T) *harness {
	c := knarrtest.Start(t, knarrtest.WithNodes(2))
	all, err := dynamic.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	h := &harness{t, c, kubernetes.NewForConfigOrDie(c.Config()), all.Resource(schedulerplugin.Resource)}
	h.eventually("the kind is served", func() bool {
		_, err := h.plugins.List(t.Context(), metav1.ListOptions{})
		return err == nil
	})
	return h
}

func (h *harness) eventually(what string, condition func() bool) {
	h.t.Helper()
	err := wait.PollUntilContextTimeout(h.t.Context(), 5*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) { return condition(), nil })
	if err != nil {
		h.t.Fatalf("%s: %v", what, err)
	}
}

// apply creates the plugin, or replaces its spec.
func (h *harness) apply(name string, spec map[string]any) {
	h.t.Helper()
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": schedulerplugin.GroupVersion.String(), "kind": "SchedulerPlugin", "metadata": map[string]any{"name": name}, "spec": spec,
	}}
	if _, err := h.plugins.Apply(h.t.Context(), name, u, metav1.ApplyOptions{FieldManager: "test", Force: true}); err != nil {
		h.t.Fatal(err)
	}
}

// condition returns a condition of the plugin's newest spec.
func (h *harness) condition(name, condition string) metav1.Condition {
	u, err := h.plugins.Get(h.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return metav1.Condition{}
	}
	p, err := schedulerplugin.From(u)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, c := range p.Status.Conditions {
		if c.Type == condition && c.ObservedGeneration == p.Generation {
			return c
		}
	}
	return metav1.Condition{}
}

func (h *harness) awaitLoaded(name string) {
	h.t.Helper()
	var last metav1.Condition
	err := wait.PollUntilContextTimeout(h.t.Context(), 5*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		last = h.condition(name, schedulerplugin.Loaded)
		return last.Status == metav1.ConditionTrue, nil
	})
	if err != nil {
		h.t.Fatalf("plugin %s is not loaded: %+v", name, last)
	}
}

func digest(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

func (h *harness) store(name string, modules map[string][]byte) {
	h.t.Helper()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, BinaryData: modules}
	if _, err := h.client.CoreV1().ConfigMaps("kube-system").Create(h.t.Context(), m, metav1.CreateOptions{}); err != nil {
		h.t.Fatal(err)
	}
}

func fromConfigMap(name, key string, content []byte) map[string]any {
	return map[string]any{"source": map[string]any{"configMap": map[string]any{"name": name, "key": key}}, "sha256": digest(content)}
}

func (h *harness) create(name string) {
	h.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}}}
	if _, err := h.client.CoreV1().Pods("default").Create(h.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		h.t.Error(err)
	}
}

// node waits until the pod is bound, and returns its node.
func (h *harness) node(pod string) (node string) {
	h.t.Helper()
	h.eventually("pod "+pod+" is bound", func() bool {
		p, err := h.client.CoreV1().Pods("default").Get(h.t.Context(), pod, metav1.GetOptions{})
		if err == nil {
			node = p.Spec.NodeName
		}
		return node != ""
	})
	return node
}

func TestAPluginIsSwappedUnderLoad(t *testing.T) {
	h := start(t)
	modules := [2][]byte{wasm.OnlyNode("node-0"), wasm.OnlyNode("node-1")}
	h.store("modules", map[string][]byte{"0": modules[0], "1": modules[1]})
	use := func(i int) {
		h.apply("only", fromConfigMap("modules", fmt.Sprint(i), modules[i]))
		h.awaitLoaded("only")
	}
	use(0)

	bound := map[types.UID]map[string]bool{} // the nodes that each pod was seen on
	watch, err := h.client.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	var watching sync.WaitGroup
	watching.Go(func() {
		for e := range watch.ResultChan() {
			if pod, ok := e.Object.(*corev1.Pod); ok && pod.Spec.NodeName != "" {
				if bound[pod.UID] == nil {
					bound[pod.UID] = map[string]bool{}
				}
				bound[pod.UID][pod.Spec.NodeName] = true
			}
		}
	})
	const load = 120
	var loading sync.WaitGroup
	loading.Go(func() {
		for i := range load {
			h.create(fmt.Sprint("load-", i))
		}
	})
	for swap := range 6 {
		i := (swap + 1) % 2
		use(i)
		name := fmt.Sprint("probe-", swap)
		h.create(name)
		if node := h.node(name); node != fmt.Sprint("node-", i) {
			t.Errorf("after swap %d a pod is on %s", swap, node)
		}
	}
	loading.Wait()
	if err := h.plugins.Delete(t.Context(), "only", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range load {
		h.node(fmt.Sprint("load-", i))
	}
	watch.Stop()
	watching.Wait()
	for uid, nodes := range bound {
		if len(nodes) != 1 {
			t.Errorf("pod %s was bound to %v", uid, nodes)
		}
	}
}

func TestPluginsComeFromFilesAndRegistries(t *testing.T) {
	h := start(t)
	module := wasm.OnlyNode("node-1")
	var zipped bytes.Buffer
	w := gzip.NewWriter(&zipped)
	if _, err := w.Write(module); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	h.apply("file", map[string]any{"source": map[string]any{"file": "only.wasm.gz"}, "sha256": digest(zipped.Bytes())})
	h.eventually("the missing file is told", func() bool {
		c := h.condition("file", schedulerplugin.Loaded)
		return c.Reason == schedulerplugin.ReasonUnavailable && strings.Contains(c.Message, "only.wasm.gz")
	})
	folder := filepath.Join(h.cluster.Dir(), "scheduler-plugins")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "only.wasm.gz"), zipped.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	h.awaitLoaded("file")

	r, err := registry.Start(t.Context(), "127.0.0.1:0", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	image, err := mutate.AppendLayers(empty.Image, static.NewLayer(module, "application/wasm"))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Push(t.Context(), "plugins/only:v1", image); err != nil {
		t.Fatal(err)
	}
	h.apply("registry", map[string]any{"source": map[string]any{"oci": r.Address + "/plugins/only:v1"}, "sha256": digest(module)})
	h.awaitLoaded("registry")
	h.apply("registry", map[string]any{"source": map[string]any{"oci": r.Address + "/plugins/only:v1"}, "sha256": digest([]byte("other"))})
	h.eventually("another digest is told, and the former module stays", func() bool {
		c := h.condition("registry", schedulerplugin.Loaded)
		return c.Reason == schedulerplugin.ReasonDigest && strings.Contains(c.Message, "of the former spec still decides")
	})
}

func TestAFailingPluginIsToldInConditionsAndEvents(t *testing.T) {
	h := start(t)
	module := wasm.Trapping()
	h.store("modules", map[string][]byte{"trap": module})
	h.apply("trap", fromConfigMap("modules", "trap", module))
	h.awaitLoaded("trap")
	h.create("pod")
	h.eventually("the pod's condition names the plugin", func() bool {
		p, err := h.client.CoreV1().Pods("default").Get(t.Context(), "pod", metav1.GetOptions{})
		return err == nil && len(p.Status.Conditions) > 0 && strings.Contains(p.Status.Conditions[0].Message, "plugin trap failed in filter: unreachable")
	})
	h.eventually("an event of the pod names the plugin", func() bool {
		events, err := h.client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=pod,reason=SchedulerPluginFailed"})
		return err == nil && len(events.Items) > 0
	})
	for i := range 5 {
		h.create(fmt.Sprint("more-", i))
	}
	h.eventually("the plugin is suspended", func() bool {
		return h.condition("trap", schedulerplugin.Working).Reason == schedulerplugin.ReasonSuspended
	})
	spec := fromConfigMap("modules", "trap", module)
	spec["failurePolicy"] = "Ignore"
	h.apply("trap", spec)
	h.node("pod")
}
