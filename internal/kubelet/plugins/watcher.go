package plugins

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"
)

const (
	// maxSockets limits the number of registered plugins.
	maxSockets = 256
	// maxDepth limits the depth of folders below the watched one.
	maxDepth = 4
)

// Plugin is a plugin that wants to register.
type Plugin struct {
	// Type is CSIPlugin, DevicePlugin or DRAPlugin; see k8s.io/kubelet/pkg/apis/pluginregistration.
	Type string
	// Name is unique among the plugins of a type, such as the name of a driver.
	Name string
	// Endpoint is the socket of the plugin's service.
	Endpoint string
	// Versions are the supported versions of the plugin's service.
	Versions []string
	// Socket is the registration socket. Two plugins with one name have different sockets, for
	// example during a rolling update of a driver.
	Socket string
}

// Handler registers the plugins of one type. Its methods are called concurrently for different
// sockets, and in turn for one socket.
type Handler interface {
	// Register starts to use the plugin. The plugin is told of an error, and Register is called
	// again later.
	Register(ctx context.Context, p Plugin) error
	// Deregister stops to use the plugin. It is called once for each successful Register.
	Deregister(p Plugin)
}

// Watcher registers the plugins whose sockets are in a folder or its subfolders.
type Watcher struct {
	Dir string
	// Handlers maps a type of plugin to its handler. Plugins of other types are ignored.
	Handlers map[string]Handler
	Log      *slog.Logger
}

// identity tells a socket from a later one of the same path.
type identity struct {
	inode   uint64
	changed unix.Timespec
}

// attended is a socket with a goroutine.
type attended struct {
	id     identity
	cancel context.CancelFunc
	done   chan struct{}
}

// Run works until ctx ends. Then all plugins are deregistered.
func (w *Watcher) Run(ctx context.Context) error {
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watch for plugins: %w", err)
	}
	defer notify.Close()
	sockets := map[string]*attended{}
	defer func() {
		for _, a := range sockets {
			a.cancel()
			<-a.done
		}
	}()
	for {
		found, err := w.scan(notify)
		var again <-chan time.Time
		if err != nil {
			w.Log.Warn("cannot look for plugins; trying again", "folder", w.Dir, "error", err)
			again = time.After(time.Second)
		} else {
			w.attend(ctx, sockets, found)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-notify.Events:
		case err := <-notify.Errors:
			w.Log.Warn("watching for plugins", "folder", w.Dir, "error", err)
		case <-again:
		}
	}
}

// attend starts a goroutine for each new socket and ends the goroutines of the others.
func (w *Watcher) attend(ctx context.Context, sockets map[string]*attended, found map[string]identity) {
	for path, a := range sockets {
		if id, ok := found[path]; !ok || id != a.id {
			a.cancel()
		}
	}
	for path, id := range found {
		before := sockets[path]
		if before != nil && before.id == id {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		a := &attended{id: id, cancel: cancel, done: make(chan struct{})}
		sockets[path] = a
		go func() {
			defer close(a.done)
			if before != nil {
				<-before.done
			}
			w.keep(ctx, path)
		}()
	}
	for path, a := range sockets {
		if _, ok := found[path]; ok {
			continue
		}
		select {
		case <-a.done:
			delete(sockets, path)
		default: // it is deregistering; a new socket of the same path waits for it
		}
	}
}

// scan lists the sockets and watches all folders. It does not follow links.
func (w *Watcher) scan(notify *fsnotify.Watcher) (map[string]identity, error) {
	if err := os.MkdirAll(w.Dir, 0o750); err != nil {
		return nil, err
	}
	found := map[string]identity{}
	err := filepath.WalkDir(w.Dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			if os.IsNotExist(err) && path != w.Dir {
				return nil // removed meanwhile
			}
			return err
		}
		if path != w.Dir && strings.HasPrefix(entry.Name(), ".") {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if entry.IsDir() {
			if relative, _ := filepath.Rel(w.Dir, path); strings.Count(relative, "/") >= maxDepth {
				return fs.SkipDir
			}
			return notify.Add(path)
		}
		if entry.Type()&fs.ModeSocket == 0 {
			return nil
		}
		if len(found) == maxSockets {
			w.Log.Warn("there are too many sockets of plugins; the rest is ignored", "folder", w.Dir, "limit", maxSockets)
			return fs.SkipAll
		}
		var st unix.Stat_t
		if unix.Lstat(path, &st) == nil {
			found[path] = identity{st.Ino, st.Mtim}
		}
		return nil
	})
	return found, err
}
