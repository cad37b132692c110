package scheduler

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/scheduler/framework"
)

func TestAChangedFileCountsWithoutARestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(configHead+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("podInitialBackoffSeconds: 2")
	metrics := NewMetrics()
	source, err := OpenSource(t.Context(), file, metrics, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Client: &binding{}, Events: noEvents{}})
	release, err := source.Use(s)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	check := func(what string, want time.Duration) {
		t.Helper()
		source.file.Check(t.Context(), time.Now())
		s.drain()
		if s.queue.initialBackoff != want {
			t.Errorf("%s: backoff %v, want %v", what, s.queue.initialBackoff, want)
		}
	}
	check("at first", 2*time.Second)
	write("podInitialBackoffSeconds: 3")
	check("changed", 3*time.Second)
	write("podInitialBackoffSeconds: -1")
	check("invalid", 3*time.Second)
	write("profiles: [{plugins: {filter: {enabled: [{name: Unknown}]}}}]")
	check("with an unknown plugin", 3*time.Second)
	write("podInitialBackoffSeconds: 4")
	check("corrected", 4*time.Second)
	source.file.Check(t.Context(), time.Now())
	for result, want := range map[string]float64{"used": 3, "refused": 2} {
		var m dto.Metric
		if err := metrics.configurations.WithLabelValues(result).Write(&m); err != nil || m.Counter.GetValue() != want {
			t.Errorf("%s: %v (%v), want %v", result, m.Counter.GetValue(), err, want)
		}
	}
}

func TestAnInvalidFileStopsTheStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "scheduler.yaml")
	if err := os.WriteFile(file, []byte(configHead+"profiles: [{plugins: {score: {enabled: [{name: NodeAfinity}]}}}]"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := OpenSource(t.Context(), file, NewMetrics(), slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "profiles[0].plugins.score.enabled[0].name") {
		t.Errorf("%v", err)
	}
}

func TestRunningSchedulersTakeNewProfiles(t *testing.T) {
	s, now := configured(t, "profiles: [{schedulerName: a}, {schedulerName: b}]"), time.Unix(1000, 0)
	s.cluster = newCluster(nil, nil)
	for _, name := range []string{"a", "b", "c"} {
		s.onPod(nil, pod(name, "", func(p *corev1.Pod) { p.Spec.SchedulerName = name }), false, now)
	}
	p, _ := s.queue.pop(now)
	s.queue.refused(p, framework.NodeAdded, now)
	made, err := s.setup(mustParse(t, "profiles: [{schedulerName: "+p.info.Pod.Name+"}]"), nil)
	if err != nil {
		t.Fatal(err)
	}
	s.use(made)
	s.reconsider(nil, now.Add(time.Minute))
	got, ok := s.queue.pop(now.Add(time.Minute))
	if !ok || got != p {
		t.Error("the waiting pod is not tried again")
	}
	if _, ok := s.queue.pop(now.Add(time.Minute)); ok {
		t.Error("a pod of a removed profile is tried")
	}
	other := pod("c", "", func(p *corev1.Pod) { p.Spec.SchedulerName = "c" })
	if made, err = s.setup(mustParse(t, "profiles: [{schedulerName: c}]"), nil); err != nil {
		t.Fatal(err)
	}
	s.use(made)
	s.reconsider([]*corev1.Pod{other}, now.Add(time.Minute))
	if got, ok := s.queue.pop(now.Add(time.Minute)); !ok || got.info.Pod != other {
		t.Error("the pod of a new profile is not tried")
	}
}

// eventList keeps the texts of events.
type eventList struct{ texts []string }

func (l *eventList) Eventf(regarding, _ runtime.Object, kind, reason, _, note string, args ...any) {
	lease := regarding.(*corev1.ObjectReference)
	l.texts = append(l.texts, fmt.Sprintf("%s/%s %s %s: ", lease.Namespace, lease.Name, kind, reason)+fmt.Sprintf(note, args...))
}

// take returns the events since the last call.
func (l *eventList) take() string {
	defer func() { l.texts = nil }()
	return strings.Join(l.texts, "\n")
}

func TestEventsTellOfAChangedFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "scheduler.yaml")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(configHead+text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	// The file is a symbolic link to a file below a linked folder, as a ConfigMap's volume has it.
	version := func(name, text string) {
		t.Helper()
		must(os.MkdirAll(filepath.Join(dir, name), 0o700))
		write(filepath.Join(name, "scheduler.yaml"), text)
		must(os.Symlink(name, filepath.Join(dir, "..data_tmp")))
		must(os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	version("first", "podInitialBackoffSeconds: 2")
	must(os.Symlink(filepath.Join("..data", "scheduler.yaml"), file))

	source, err := OpenSource(t.Context(), file, NewMetrics(), slog.New(slog.DiscardHandler))
	must(err)
	events := &eventList{}
	s := New(Config{Client: &binding{}, Events: events})
	release, err := source.Use(s)
	must(err)
	check := func(what string, backoff time.Duration, want ...string) {
		t.Helper()
		for range 2 { // an event comes once
			source.file.Check(t.Context(), time.Now())
		}
		s.drain()
		got := events.take()
		if s.queue.initialBackoff != backoff || strings.Count(got, "\n") != max(len(want)-1, 0) || len(want) == 0 && got != "" {
			t.Errorf("%s: backoff %v, events:\n%s", what, s.queue.initialBackoff, got)
		}
		for _, part := range want {
			if !strings.Contains(got, part) {
				t.Errorf("%s: %q is missing in:\n%s", what, part, got)
			}
		}
	}
	const refused, used = "kube-system/kube-scheduler Warning ConfigurationRefused: ", "kube-system/kube-scheduler Normal ConfigurationChanged: "
	check("at first", 2*time.Second)
	version("second", "podInitialBackoffSeconds: 3")
	check("another folder", 3*time.Second, used+"")
	version("third", "podInitialBackoffSeconds: 0")
	check("invalid", 3*time.Second, refused+"the previous configuration stays in use: "+file+": podInitialBackoffSeconds: Invalid value: 0: must be greater than 0")
	version("fourth", "podInitialBackoffSeconds: 3")
	check("as before", 3*time.Second)
	must(os.Remove(file))
	check("removed", 3*time.Second, refused)
	write("new", "podInitialBackoffSeconds: 4\nparallelism: 16\ndelayCacheUntilActive: false")
	must(os.Rename(filepath.Join(dir, "new"), file))
	check("renamed", 4*time.Second, used, "Warning ConfigurationWithoutEffect: "+file+": parallelism: 16 has no effect")
	write("scheduler.yaml", "profiles: [{plugins: {score: {enabled: [{name: NodeAfinity}]}}}]")
	check("an unknown plugin", 4*time.Second, "profiles[0].plugins.score.enabled[0].name")

	// The next leader's events say so too.
	release()
	write("scheduler.yaml", "podInitialBackoffSeconds: -1")
	check("while no scheduler runs", 4*time.Second)
	s = New(Config{Client: &binding{}, Events: events})
	release, err = source.Use(s)
	must(err)
	defer release()
	check("the next one", 4*time.Second, "delayCacheUntilActive: false has no effect", "podInitialBackoffSeconds: Invalid value: -1")
}
