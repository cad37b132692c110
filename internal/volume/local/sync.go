package local

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/knarr-project/knarr/internal/client"
)

// syncer compares the PersistentVolumes with the disk. Run's goroutine owns it; steps that take
// time run beside it and wake it.
type syncer struct {
	*Agent
	volumes client.ViewOf[*corev1.PersistentVolume]
	nodes   client.ViewOf[*corev1.Node]
	locks   map[string]lock

	steps sync.WaitGroup
	slots chan struct{}
	// last is the report that the Node has, to change it only for a reason.
	last Report
}

// sync takes the next step of every volume and reports.
func (s *syncer) sync(ctx context.Context) error {
	answers := map[string]Answer{}
	known := map[string]bool{}
	for _, v := range s.volumes.List("", nil) {
		known[v.Name] = true
		if !Ours(v) || v.Annotations[NodeAnnotation] != s.NodeName {
			continue
		}
		if answer, ok := s.answer(ctx, v); ok && len(answers) < maxAnswers {
			if len(answer.Message) > maxMessage {
				answer.Message = answer.Message[:maxMessage]
			}
			answers[v.Name] = answer
		}
	}
	s.removeOrphans(known)
	s.forgetFailures(known)
	folders := map[string]Folder{}
	for name, path := range s.Folders {
		if l := s.locks[name]; l.trouble != "" {
			folders[name] = Folder{Path: path, Trouble: l.trouble}
			continue
		}
		folders[name] = s.measure(path)
	}
	return s.report(ctx, Report{Folders: folders, Volumes: answers})
}

// answer returns the answer for a volume that the controller waits for, and begins the step that is
// missing.
func (s *syncer) answer(ctx context.Context, v *corev1.PersistentVolume) (Answer, bool) {
	deleted := v.DeletionTimestamp != nil
	if deleted && v.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete || !deleted && v.Annotations[PendingAnnotation] == "" {
		return Answer{}, false
	}
	d, err := s.diskOf(v)
	if err == nil {
		err = safeName(v.Name)
	}
	if err == nil && s.locks[v.Annotations[FolderAnnotation]].trouble != "" {
		err = errors.New(s.locks[v.Annotations[FolderAnnotation]].trouble)
	}
	if err != nil {
		return Answer{State: Failed, Message: err.Error()}, true
	}
	if deleted {
		return s.removal(ctx, d, v.Name)
	}
	w := wantedOf(v)
	if r, err := d.read(v.Name); err == nil && r.UID == w.uid && r.Bytes >= w.bytes {
		return Answer{State: Ready, Bytes: r.Bytes}, true
	}
	return s.step(ctx, v.Name, v.Annotations[PendingAnnotation], func() error { return d.make(ctx, w) })
}

func (s *syncer) removal(ctx context.Context, d disk, name string) (Answer, bool) {
	gone, err := d.gone(name)
	if err == nil && gone {
		return Answer{State: Removed}, true
	}
	if used, err := inUse(name); used || err != nil {
		return Answer{}, false // until its last pod is gone; the next refresh looks again
	}
	return s.step(ctx, name, "remove", func() error { return d.remove(name) })
}

// step begins a step beside the loop, unless it runs or has failed a moment ago.
func (s *syncer) step(ctx context.Context, name, step string, do func() error) (Answer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	failed, ok := s.failed[name]
	if ok && failed.step == step && time.Now().Before(failed.until) {
		return Answer{State: Failed, Message: failed.message}, true
	}
	if s.busy[name] != nil {
		return Answer{}, false
	}
	done := make(chan struct{})
	s.busy[name] = done
	s.steps.Go(func() {
		var err error
		select {
		case s.slots <- struct{}{}:
			err = do()
			<-s.slots
		case <-ctx.Done():
			err = ctx.Err()
		}
		s.mu.Lock()
		delete(s.busy, name)
		delete(s.failed, name)
		if err != nil && ctx.Err() == nil {
			s.Log.Warn("a step for a local volume failed", "volume", name, "step", step, "error", err)
			s.failed[name] = failure{step: step, message: err.Error(), until: time.Now().Add(refreshPeriod)}
		}
		s.mu.Unlock()
		close(done)
		s.kick()
	})
	return Answer{}, false
}

func (s *syncer) forgetFailures(known map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.failed, func(name string, _ failure) bool { return !known[name] })
}

// removeOrphans removes volumes that no pod ever used and whose PersistentVolume is gone: the
// controller gave up while the node was away. Volumes with data are never removed for the lack of
// an object, since an empty or an older store would then cost the data.
func (s *syncer) removeOrphans(known map[string]bool) {
	for name, path := range s.Folders {
		if s.locks[name].trouble != "" {
			continue
		}
		d := disk{path}
		volumes, _, err := d.names()
		if err != nil {
			continue
		}
		for _, volume := range volumes {
			if known[volume] {
				continue
			}
			r, err := d.read(volume)
			if err != nil || r.Used {
				continue
			}
			if info, err := os.Stat(d.at(volume)); err != nil || time.Since(info.ModTime()) < orphanAge {
				continue
			}
			if err := d.remove(volume); err != nil && !errors.Is(err, fs.ErrNotExist) {
				s.Log.Warn("cannot remove a local volume that was never used", "volume", volume, "error", err)
			}
		}
	}
}

// report writes the report into the Node if it changed.
func (s *syncer) report(ctx context.Context, r Report) error {
	node, ok := s.nodes.Get("", s.NodeName)
	if !ok {
		return nil // its event wakes the loop
	}
	for name, now := range r.Folders {
		if then, ok := s.last.Folders[name]; ok {
			r.Folders[name] = steady(then, now)
		}
	}
	text, err := r.encode()
	if err != nil {
		return err
	}
	if node.Annotations[ReportAnnotation] == text {
		s.last = r
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{ReportAnnotation: text}}})
	if err != nil {
		return err
	}
	if _, err := client.Patch[*corev1.Node](ctx, s.Client, "", s.NodeName, types.MergePatchType, patch); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}
	s.last = r
	return nil
}

// steady returns the old report of a folder if the new one differs only by little: free space
// changes all the time, and a write to a Node reaches everything that watches nodes.
func steady(then, now Folder) Folder {
	moved := then.Room - now.Room
	then.Room = now.Room
	if !reflect.DeepEqual(then, now) || max(moved, -moved) > now.Size/100 {
		return now
	}
	then.Room = now.Room + moved
	return then
}
