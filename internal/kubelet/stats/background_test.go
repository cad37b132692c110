package stats

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/knarr-project/knarr/internal/volume"
)

type quietRuntime struct {
	internalapi.RuntimeService
	pods []string
}

func (r quietRuntime) ListPodSandboxStats(context.Context, *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	var out []*runtimeapi.PodSandboxStats
	for _, uid := range r.pods {
		out = append(out, &runtimeapi.PodSandboxStats{Attributes: &runtimeapi.PodSandboxAttributes{Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid}}})
	}
	return out, nil
}

type noImages struct {
	internalapi.ImageManagerService
}

func (noImages) ImageFsInfo(context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return nil, errors.New("no images")
}

func TestASummaryDoesNotWaitForAHungVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackground(time.Now)
		hung := make(chan struct{})
		var answered atomic.Int32
		measure := func(key string, run func(context.Context) (volume.Usage, error)) (uint64, bool) {
			u, _, ok := b.latest(key, run)
			synctest.Wait()
			return u.UsedBytes, ok
		}
		stuck := func(context.Context) (volume.Usage, error) {
			<-hung
			answered.Add(1)
			return volume.Usage{UsedBytes: 1}, nil
		}
		quick := func(context.Context) (volume.Usage, error) { return volume.Usage{UsedBytes: 2}, nil }
		for i := range 2 * measuringAtOnce { // more than there are places
			if _, ok := measure("stuck"+string(rune('a'+i)), stuck); ok {
				t.Fatal("a hung volume has a result")
			}
		}
		measure("quick", quick)
		time.Sleep(3 * measuringTime) // the hung ones give their places back
		synctest.Wait()
		if used, ok := measure("quick", quick); !ok || used != 2 {
			t.Errorf("the other volume has %d, %v", used, ok)
		}
		if _, ok := measure("stucka", stuck); ok || answered.Load() != 0 {
			t.Errorf("a hung volume was measured %d times", answered.Load())
		}
		close(hung)
		synctest.Wait()
		if used, ok := measure("stucka", stuck); !ok || used != 1 {
			t.Errorf("when it answers again it has %d, %v", used, ok)
		}
		b.cancel()
	})
}

func TestALowerBoundCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackground(time.Now)
		for _, step := range []struct {
			name string
			used uint64
			err  error
			want uint64
		}{
			{"the first", 5, nil, 5},
			{"a larger lower bound replaces it", 7, volume.ErrPartial, 7},
			{"a smaller one says nothing", 1, volume.ErrPartial, 7},
			{"neither does an error", 9, errors.New("no"), 7},
			{"a complete one does", 2, nil, 2},
		} {
			run := func(context.Context) (volume.Usage, error) { return volume.Usage{UsedBytes: step.used}, step.err }
			b.latest("v", run)
			synctest.Wait()
			if u, _, ok := b.latest("v", run); !ok || u.UsedBytes != step.want {
				t.Errorf("%s: %d, %v, want %d", step.name, u.UsedBytes, ok, step.want)
			}
			time.Sleep(measuringAge)
		}
		b.cancel()
	})
}

func TestASummaryShowsVolumesOnceTheyAreMeasured(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "data"), make([]byte, 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "ns", UID: "u"}}
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	var clock atomic.Int64
	clock.Store(time.Now().UnixNano())
	c := New(Config{
		Runtime: quietRuntime{pods: []string{"u"}}, Images: noImages{}, RootDir: dir, LogsDir: dir, Now: func() time.Time { return time.Unix(0, clock.Load()) },
		Pods:    func() []*corev1.Pod { return []*corev1.Pod{p} },
		Volumes: func(*corev1.Pod, string) []volume.Measurement { return []volume.Measurement{{Volume: "v", Dir: dir}} },
	})
	defer c.disk.cancel()
	for tries := 0; ; tries++ {
		s, err := c.Summary(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		clock.Add(int64(summaryAge))
		if len(s.Pods) == 1 && len(s.Pods[0].VolumeStats) == 1 {
			if used := *s.Pods[0].VolumeStats[0].UsedBytes; used < 2<<20 || *s.Pods[0].EphemeralStorage.UsedBytes < used {
				t.Errorf("%d bytes", used)
			}
			return
		}
		if tries == 1000 {
			t.Fatal("the volume is never measured")
		}
		time.Sleep(5 * time.Millisecond)
	}
}
