package shutdown

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
)

// fakeLock is a Logind that records its calls.
type fakeLock struct {
	signals chan bool
	note    func(format string, args ...any)
}

func (f *fakeLock) Delay(context.Context) (time.Duration, error) { return 5 * time.Second, nil }
func (f *fakeLock) Extend(_ context.Context, d time.Duration) error {
	f.note("extend %s", d)
	return nil
}
func (f *fakeLock) Lock(context.Context) (func() error, error) {
	f.note("lock")
	return func() error { f.note("release"); return nil }, nil
}
func (f *fakeLock) Signals() <-chan bool { return f.signals }
func (f *fakeLock) Close() error         { return nil }

// stage is a node with pods that end as soon as they are told to, except for stubborn ones.
type stage struct {
	mu       sync.Mutex
	pods     []*corev1.Pod
	ended    map[types.UID]bool
	stubborn map[types.UID]bool
	log      []string
	changed  chan bool
}

func (s *stage) note(format string, args ...any) {
	s.mu.Lock()
	s.log = append(s.log, fmt.Sprintf(format, args...))
	s.mu.Unlock()
}

func (s *stage) lines() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

func newStage(t *testing.T, groups []Group, change ...func(*Config)) (*stage, *Manager) {
	s := &stage{ended: map[types.UID]bool{}, stubborn: map[types.UID]bool{}, changed: make(chan bool, 10)}
	c := Config{
		Groups: groups, Pods: func() []*corev1.Pod { return s.pods },
		End: func(pod *corev1.Pod, grace int64) {
			s.note("end %s in %d", pod.Name, grace)
			s.mu.Lock()
			s.ended[pod.UID] = !s.stubborn[pod.UID]
			s.mu.Unlock()
		},
		Ended: func(uid types.UID) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.ended[uid]
		},
		Settled: func() bool { return true }, Changed: func(begins bool) { s.changed <- begins },
		Logind: func(context.Context) (Logind, error) { return nil, errors.ErrUnsupported }, Halting: func() bool { return false },
		StateFile: filepath.Join(t.TempDir(), "state"), Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	for _, fn := range change {
		fn(&c)
	}
	return s, New(c)
}

func (s *stage) pod(name string, priority int32, grace int64) {
	s.pods = append(s.pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{Priority: &priority, TerminationGracePeriodSeconds: &grace}})
}

func TestGroupsOfTheSettings(t *testing.T) {
	c := &kubeletconfig.KubeletConfiguration{}
	if g := Groups(c); len(g) != 0 {
		t.Errorf("groups by default: %v", g)
	}
	c.ShutdownGracePeriod.Duration, c.ShutdownGracePeriodCriticalPods.Duration = 30*time.Second, 10*time.Second
	if g := Groups(c); !slices.Equal(g, []Group{{0, 20 * time.Second}, {systemCritical, 10 * time.Second}}) {
		t.Errorf("groups of two periods: %v", g)
	}
	c.ShutdownGracePeriod.Duration, c.ShutdownGracePeriodCriticalPods.Duration = 0, 0
	c.ShutdownGracePeriodByPodPriority = []kubeletconfig.ShutdownGracePeriodByPodPriority{{Priority: 1000, ShutdownGracePeriodSeconds: 5}, {Priority: -10, ShutdownGracePeriodSeconds: 3}}
	if g := Groups(c); !slices.Equal(g, []Group{{-10, 3 * time.Second}, {1000, 5 * time.Second}}) {
		t.Errorf("groups by priority: %v", g)
	}
}

func TestPodsEndByPriorityWithinTheirGroupsPeriod(t *testing.T) {
	s, m := newStage(t, []Group{{0, 20 * time.Second}, {1000, 10 * time.Second}, {systemCritical, 5 * time.Second}}, func(c *Config) { c.Halting = func() bool { return true } })
	s.pod("critical", systemCritical+1000, 60)
	s.pod("low", -5, 30)
	s.pod("high", 1000, 3)
	m.Stop(t.Context())
	if want := []string{"end low in 20", "end high in 3", "end critical in 5"}; !slices.Equal(s.lines(), want) {
		t.Errorf("got %q, want %q", s.lines(), want)
	}
	if !<-s.changed || m.Err() == nil {
		t.Error("the node does not show that it is shutting down")
	}
	m.Stop(t.Context()) // ends nothing again
	if n := len(s.lines()); n != 3 {
		t.Errorf("%d calls", n)
	}
	if again := New(m.Config); again.times.Start.IsZero() || again.times.End.Before(again.times.Start) {
		t.Errorf("the next start reads %+v", again.times)
	} else {
		var end dto.Metric
		if err := again.Collectors()[1].(prometheus.Metric).Write(&end); err != nil || end.Gauge.GetValue() < 1e9 {
			t.Errorf("the metric of the end is %v, %v", &end, err)
		}
	}
}

func TestAPodThatDoesNotEndDelaysTheNextGroupOnlyForItsPeriod(t *testing.T) {
	s, m := newStage(t, []Group{{0, 120 * time.Millisecond}, {1000, time.Minute}}, func(c *Config) { c.Halting = func() bool { return true } })
	s.pod("stubborn", 0, 30)
	s.pod("high", 1000, 3)
	s.stubborn["stubborn"] = true
	m.Stop(t.Context())
	if want := []string{"end stubborn in 0", "end high in 3"}; !slices.Equal(s.lines(), want) {
		t.Errorf("got %q, want %q", s.lines(), want)
	}
}

func TestAPlainStopEndsNoPod(t *testing.T) {
	s, m := newStage(t, []Group{{0, time.Minute}})
	s.pod("one", 0, 30)
	ctx, cancel := context.WithCancel(t.Context())
	longer, release := m.Outlast(ctx)
	defer release()
	cancel()
	<-longer.Done()
	if lines := s.lines(); len(lines) > 0 || m.Err() != nil {
		t.Errorf("calls %q, error %v", lines, m.Err())
	}
}

func TestWithoutGroupsAShutdownEndsNoPod(t *testing.T) {
	s, m := newStage(t, nil, func(c *Config) { c.Halting = func() bool { return true } })
	s.pod("one", 0, 30)
	m.Run(t.Context()) // returns at once
	m.Stop(t.Context())
	if lines := s.lines(); len(lines) > 0 {
		t.Errorf("calls %q", lines)
	}
}

func TestLogindIsHeldUntilThePodsHaveEnded(t *testing.T) {
	f := &fakeLock{signals: make(chan bool, 2)}
	s, m := newStage(t, []Group{{0, 20 * time.Second}}, func(c *Config) { c.Logind = func(context.Context) (Logind, error) { return f, nil } })
	f.note = s.note
	s.pod("one", 0, 30)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { m.Run(ctx); close(done) }()
	f.signals <- true
	if !<-s.changed {
		t.Error("the shutdown was called off")
	}
	f.signals <- false
	if <-s.changed {
		t.Error("the shutdown was not called off")
	}
	if err := m.Err(); err != nil {
		t.Errorf("after the shutdown was called off: %v", err)
	}
	for deadline := time.Now().Add(time.Minute); len(s.lines()) < 5 && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
	}
	cancel()
	<-done
	const want = "extend 20s, lock, end one in 20, release, lock, release"
	if got := strings.Join(s.lines(), ", "); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
