package controlplane

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/knarr-project/knarr/internal/client"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/process"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

// startAlone runs store and API server until the test ends.
func startAlone(t *testing.T) *Server {
	t.Helper()
	cfg := config.Default()
	cfg.DataDir, cfg.Listen, cfg.AdvertiseAddress, cfg.NodeName = t.TempDir(), "127.0.0.1:0", "127.0.0.1", "here"
	cfg.APIServer.ShutdownIdle.Duration = 1
	if err := cfg.Complete(); err != nil {
		t.Fatal(err)
	}
	s := New(Options{Config: &cfg, Log: slog.Default(), Unsynced: true, ShutdownTimeout: 50 * time.Millisecond})
	s.Alone = true
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- process.Run(ctx, []process.Phase{
			{{Name: "keys", Start: s.StartKeys}, {Name: "store", Start: s.StartStore}},
			{{Name: "API server", Start: s.StartAPI}},
			{{Name: "first objects", Start: s.AwaitFirstObjects}},
		}, nil, func() { close(ready) }, slog.Default())
	}()
	select {
	case <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestASlowDiskIsAnEventOfThisServersNode(t *testing.T) {
	s := startAlone(t)
	slow := etcd.SlowDisk{Folder: "/d/etcd", Device: etcd.Device{Name: "/dev/sda1", MountPoint: "/d", FileSystem: "ext4"}, What: "its log", Writes: 9, Slow: 1, Bound: time.Second}
	s.slowDisk <- slow // there is no such node: only the log has it
	if _, err := client.Create(t.Context(), s.own(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here"}}); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		select {
		case s.slowDisk <- slow:
		default:
		}
		list, err := s.own().List(t.Context(), corev1.SchemeGroupVersion.WithResource("events"), "default", metav1.ListOptions{FieldSelector: "reason=SlowStoreDisk"})
		if err != nil {
			t.Fatal(err)
		}
		events := list.(*corev1.EventList).Items
		if len(events) == 0 {
			continue
		}
		e := events[0]
		if e.InvolvedObject.Kind != "Node" || e.InvolvedObject.Name != "here" || e.Type != corev1.EventTypeWarning || !strings.Contains(e.Message, "/dev/sda1 (ext4, mounted on /d)") {
			t.Errorf("the event is %+v", e)
		}
		return
	}
	t.Fatal("no event")
}

func TestMetricsOfTheStoreAreServed(t *testing.T) {
	s := startAlone(t)
	access, err := clientcmd.BuildConfigFromFlags("", s.cfg.AdminKubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	c, err := rest.HTTPClientFor(access)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := c.Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"knarr_store_quota_bytes 8.589934592e+09", "knarr_store_healthy 1", "etcd_disk_wal_fsync_duration_seconds_count"} {
		if !strings.Contains(string(body), name) {
			t.Errorf("%s is missing", name)
		}
	}
}
