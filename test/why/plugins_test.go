package why

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/knarr-project/knarr/internal/schedulerplugin"
)

// guest is a module in WebAssembly whose function filter has these instructions.
func guest(code ...byte) []byte {
	body := append(append([]byte{0}, code...), 0x0b)
	out := []byte("\x00asm\x01\x00\x00\x00" +
		"\x01\x05\x01\x60\x00\x01\x7f" + // the type () -> i32
		"\x03\x02\x01\x00" + // one function
		"\x05\x03\x01\x00\x01" + // one page of memory
		"\x07\x13\x02\x06memory\x02\x00\x06filter\x00\x00")
	return append(append(out, 0x0a, byte(len(body)+2), 1, byte(len(body))), body...)
}

// TestPluginsOfTheSchedulerAreNamed loads plugins that refuse all pods, so it has a cluster of its
// own.
func TestPluginsOfTheSchedulerAreNamed(t *testing.T) {
	b := startCluster(t, 1)
	for _, c := range []struct {
		name, cause, says string
		module            []byte
	}{
		// i32.const 2: Unschedulable
		{"refuses", "pod-scheduler-plugin-refuses", "refused by plugin guard", guest(0x41, 2)},
		{"traps", "pod-scheduler-plugin-fails", "unreachable", guest(0x00)},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.loadPlugin(t.Context(), "guard", c.name, c.module)
			s := situation{title: c.name, cause: c.cause, ask: []string{"pod/web"}, objects: []string{"kind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: c, image: app}]}"}}
			r := judge(t.Context(), b, s, c.name)
			if r.got != c.cause || !strings.Contains(r.root.Problem, "schedulerplugin.scheduling.knarr.io/guard") || !strings.Contains(r.root.Problem, c.says) {
				t.Errorf("the answer is %s: %+v", r.got, r.root)
			}
		})
	}
	if err := b.client.Resource(schedulerplugin.Resource).Delete(t.Context(), "guard", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		pod, err := b.typed.CoreV1().Pods("traps").Get(t.Context(), "web", metav1.GetOptions{})
		if err == nil && pod.Spec.NodeName != "" {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the pod has no node without the plugin")
		}
	}
}

// loadPlugin loads a plugin from a ConfigMap, or replaces it, and waits until it counts.
func (b *broken) loadPlugin(ctx context.Context, name, source string, module []byte) {
	b.t.Helper()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: source}, BinaryData: map[string][]byte{"module": module}}
	if _, err := b.typed.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(ctx, m, metav1.CreateOptions{}); err != nil {
		b.t.Fatal(err)
	}
	plugin := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": schedulerplugin.GroupVersion.String(), "kind": "SchedulerPlugin", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"source": map[string]any{"configMap": map[string]any{"name": source, "key": "module"}}, "sha256": fmt.Sprintf("%x", sha256.Sum256(module))},
	}}
	plugins := b.client.Resource(schedulerplugin.Resource)
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		made, err := plugins.Apply(ctx, name, plugin, metav1.ApplyOptions{FieldManager: "test", Force: true})
		if err == nil {
			p, err := schedulerplugin.From(made)
			if err != nil {
				b.t.Fatal(err)
			}
			c := meta.FindStatusCondition(p.Status.Conditions, schedulerplugin.Loaded)
			if c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == p.Generation {
				return
			}
		}
		if time.Now().After(end) {
			b.t.Fatalf("the plugin is not loaded: %v", err)
		}
	}
}
