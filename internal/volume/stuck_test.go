package volume

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

func TestOnePodsStuckVolumeDoesNotStopTheTokensOfOthers(t *testing.T) {
	b := newBench(t)
	driver := startDriver(t, b)
	driver.stuck = make(chan struct{})
	b.cluster.objects["csidrivers//disk.example.com"] = &storagev1.CSIDriver{Spec: storagev1.CSIDriverSpec{VolumeLifecycleModes: []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecycleEphemeral}}}
	keeper := New(Options{Client: b.cluster, CSI: b.CSI, Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Now: b.cluster.now})
	keeper.resync = 10 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	running := make(chan struct{})
	go func() { defer close(running); keeper.Run(ctx) }()
	defer func() { cancel(); <-running }()

	token := corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}}}}
	first := pod(volume("stuck", corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "disk.example.com"}}), volume("token", token))
	mounting := make(chan error, 1)
	mountCtx, giveUp := context.WithCancel(t.Context())
	go func() { _, err := keeper.Mount(mountCtx, first, b.dir); mounting <- err }()
	eventually(t, "the driver is asked", func() bool { return strings.Contains(driver.seen(), "publish") })

	second := pod(volume("token", token))
	second.UID = "uid-2"
	secondDir := filepath.Join(filepath.Dir(b.dir), "uid-2")
	points, err := keeper.Mount(t.Context(), second, secondDir)
	if err != nil {
		t.Fatal(err)
	}
	before := map[string]string{}
	files := map[string]string{"the other pod": filepath.Join(points["token"].HostPath, "token"), "the pod itself": filepath.Join(b.dir, "volumes/kubernetes.io~projected/token/token")}
	for name, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		before[name] = string(content)
	}
	b.cluster.setNow(time.Now().Add(50 * time.Minute))
	for name, file := range files {
		eventually(t, "the token of "+name+" is renewed", func() bool {
			content, err := os.ReadFile(file)
			return err == nil && string(content) != before[name]
		})
	}
	giveUp()
	if err := <-mounting; err == nil || !strings.Contains(err.Error(), `"stuck"`) {
		t.Errorf("mounting the stuck volume: %v", err)
	}
	close(driver.stuck)
	for uid, dir := range map[*corev1.Pod]string{first: b.dir, second: secondDir} {
		if err := keeper.Unmount(t.Context(), uid.UID, dir); err != nil {
			t.Error(err)
		}
	}
}

func TestAnOperationThatHangsIsLeftAloneAndKeepsItsKey(t *testing.T) {
	o := newOperations()
	hung := make(chan struct{})
	err := o.do(t.Context(), "pod/a", 20*time.Millisecond, func(context.Context) error { <-hung; return nil })
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the hung operation returned %v", err)
	}
	if err := o.do(t.Context(), "pod/b", time.Minute, func(context.Context) error { return nil }); err != nil {
		t.Errorf("another key: %v", err)
	}
	if err := o.do(t.Context(), "pod/a", 20*time.Millisecond, func(context.Context) error { t.Error("it ran"); return nil }); err == nil || !strings.Contains(err.Error(), "earlier operation") {
		t.Errorf("the same key: %v", err)
	}
	if err := o.idle(t.Context(), "pod/", 20*time.Millisecond); err == nil || !strings.Contains(err.Error(), "volume a") {
		t.Errorf("idle: %v", err)
	}
	close(hung)
	if err := o.idle(t.Context(), "pod/", time.Minute); err != nil {
		t.Error(err)
	}
}
