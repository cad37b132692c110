package volume

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestAConfigMapVolumeFollowsItsObject(t *testing.T) {
	b := newBench(t)
	b.cluster.put("configmaps", "cm", configMap(map[string]string{"a": "1", "b": "2"}))
	p := pod(volume("cfg", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}}))
	point := b.mount(p)["cfg"]
	if want := filepath.Join(b.dir, "volumes/kubernetes.io~configmap/cfg"); point.HostPath != want {
		t.Errorf("it is at %s, want %s", point.HostPath, want)
	}
	if got := content(t, point.HostPath); !maps.Equal(got, map[string]string{"a": "1", "b": "2"}) {
		t.Errorf("content is %v", got)
	}
	if mode, _ := perm(t, filepath.Join(point.HostPath, "a")); mode != 0o644 {
		t.Errorf("mode is %v, want 0644", mode)
	}
	eventually(t, "a View is open", func() bool { b.cluster.mu.Lock(); defer b.cluster.mu.Unlock(); return len(b.cluster.views) == 1 })
	b.cluster.put("configmaps", "cm", configMap(map[string]string{"b": "3", "c": "4"}))
	eventually(t, "the new content shows", func() bool { return maps.Equal(content(t, point.HostPath), map[string]string{"b": "3", "c": "4"}) })
	b.cluster.put("configmaps", "cm", nil)
	time.Sleep(20 * time.Millisecond)
	if got := content(t, point.HostPath); len(got) != 2 {
		t.Errorf("after its deletion the volume shows %v, want the last content", got)
	}
	if err := b.Unmount(t.Context(), p.UID, b.dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(b.dir, "volumes")); !os.IsNotExist(err) {
		t.Errorf("volumes are left: %v", err)
	}
	if len(b.objects.watched) != 0 {
		t.Errorf("still followed: %v", b.objects.watched)
	}
}

// logs keeps what a Manager logs.
type logs struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(p)
}

func (l *logs) Len() int { return len(l.String()) }

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.String()
}

func TestAnObjectThatStaysMissingIsLogged(t *testing.T) {
	log := &logs{}
	b := newBenchLogging(t, log)
	b.cluster.put("configmaps", "cm", configMap(map[string]string{"a": "1"}))
	p := pod(volume("cfg", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}}))
	point := b.mount(p)["cfg"]
	eventually(t, "a View is open", func() bool { b.cluster.mu.Lock(); defer b.cluster.mu.Unlock(); return len(b.cluster.views) == 1 })
	b.cluster.put("configmaps", "cm", nil)
	failed := func() bool {
		known := b.lookUp(p.UID)
		known.projecting.Lock()
		defer known.projecting.Unlock()
		return !known.failingSince.IsZero()
	}
	eventually(t, "the deletion is seen", failed)
	if log.Len() > 0 {
		t.Errorf("logged at once: %s", log.String())
	}
	b.refresh(t.Context(), p.UID)
	if log.Len() > 0 {
		t.Errorf("logged at once: %s", log.String())
	}
	b.cluster.setNow(time.Now().Add(time.Minute))
	b.refresh(t.Context(), p.UID)
	if !strings.Contains(log.String(), `not found`) {
		t.Errorf("not logged: %s", log.String())
	}
	if got := content(t, point.HostPath); !maps.Equal(got, map[string]string{"a": "1"}) {
		t.Errorf("content is %v", got)
	}
}

func TestAFrozenPodFollowsNothing(t *testing.T) {
	log := &logs{}
	b := newBenchLogging(t, log)
	b.cluster.put("configmaps", "cm", configMap(map[string]string{"a": "1"}))
	p := pod(volume("cfg", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}}))
	point := b.mount(p)["cfg"]
	b.Freeze(p.UID)
	if len(b.objects.watched) != 0 {
		t.Errorf("still followed: %v", b.objects.watched)
	}
	b.cluster.put("configmaps", "cm", nil)
	b.refresh(t.Context(), p.UID)
	if got := content(t, point.HostPath); !maps.Equal(got, map[string]string{"a": "1"}) || log.Len() > 0 {
		t.Errorf("content is %v, log: %s", got, log.String())
	}
	if err := b.Unmount(t.Context(), p.UID, b.dir); err != nil {
		t.Fatal(err)
	}
}
