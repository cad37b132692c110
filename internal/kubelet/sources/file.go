package sources

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	corev1 "k8s.io/api/core/v1"
)

// settle is the delay between a change of the folder and reading it, so that editors can finish.
const settle = 50 * time.Millisecond

// File is a folder of manifests or a single manifest file.
type File struct {
	Path, NodeName string
	// Period is the interval for reading the folder without a change notification.
	Period time.Duration
	Log    *slog.Logger
}

// Run passes all pods of the folder to sink, at first and after each possible change, until ctx
// ends.
func (f *File) Run(ctx context.Context, sink func([]*corev1.Pod)) {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		f.Log.Warn("cannot watch the folder of static pods; reading it periodically", "path", f.Path, "error", err)
		watcher = &fsnotify.Watcher{}
	} else {
		defer watcher.Close()
	}
	tick := time.NewTicker(f.Period)
	defer tick.Stop()
	watched := false
	for {
		if !watched && err == nil {
			watched = watcher.Add(f.Path) == nil
		}
		sink(f.read())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			watched = watched && exists(f.Path)
		case <-watcher.Events:
			select {
			case <-ctx.Done():
				return
			case <-time.After(settle):
			}
			for len(watcher.Events) > 0 {
				<-watcher.Events
			}
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// read reads all manifests. It logs broken ones and leaves them out.
func (f *File) read() []*corev1.Pod {
	st, err := os.Stat(f.Path)
	if err != nil {
		if !os.IsNotExist(err) {
			f.Log.Warn("cannot read static pods", "path", f.Path, "error", err)
		}
		return nil
	}
	paths := []string{f.Path}
	if st.IsDir() {
		paths, _ = filepath.Glob(filepath.Join(f.Path, "*"))
		sort.Strings(paths)
	}
	var out []*corev1.Pod
	for _, p := range paths {
		if info, err := os.Stat(p); err != nil || !info.Mode().IsRegular() || strings.HasPrefix(filepath.Base(p), ".") {
			continue
		}
		raw, err := os.ReadFile(p)
		if err == nil {
			var pods []*corev1.Pod
			if pods, err = parse(raw, "file", p, f.NodeName); err == nil {
				out = append(out, pods...)
			}
		}
		if err != nil {
			f.Log.Warn("cannot read a static pod's manifest", "error", err)
		}
	}
	return out
}
