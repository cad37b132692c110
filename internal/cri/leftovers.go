package cri

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// leftovers are what a containerd loses if it is killed while it makes a sandbox: shims and network
// namespaces that no sandbox has yet. They are found while no containerd runs, so nothing that a
// later one makes is among them.
type leftovers struct {
	shims      []lostShim
	namespaces []string // the paths of mounts
}

type lostShim struct {
	pid     int
	started string // tells the process from a later one with the same pid
	id      string // of the sandbox or container that it was started for
}

// sweepTime limits the wait for containerd's list of sandboxes.
const sweepTime = time.Minute

// findLeftovers lists all shims and network namespaces of the run folder.
func findLeftovers(config Config) leftovers {
	var found leftovers
	if entries, err := os.ReadDir(config.state()); err != nil || len(entries) == 0 {
		return found // no containerd has run since the machine's start
	}
	for _, pid := range programPIDs(config.binDir()) {
		id, ok := idOfShim(pid)
		if !ok {
			continue
		}
		if started, err := startTime(pid); err == nil {
			found.shims = append(found.shims, lostShim{pid, started, id})
		}
	}
	// The pattern has no error.
	found.namespaces, _ = filepath.Glob(filepath.Join(config.state(), "io.containerd.*", "netns", "cni-*"))
	return found
}

// idOfShim reads the id from the arguments of a process. ok is false if it is no shim of pods.
func idOfShim(pid int) (id string, ok bool) {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return "", false
	}
	args := strings.Split(string(bytes.TrimRight(line, "\x00")), "\x00")
	if !strings.HasPrefix(filepath.Base(args[0]), "containerd-shim") || valueOf(args, "-namespace") != "k8s.io" {
		return "", false
	}
	id = valueOf(args, "-id")
	return id, id != ""
}

func valueOf(args []string, flag string) string {
	if i := slices.Index(args, flag); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

// sweepLater sweeps in the background: pods need not wait for it.
func (r *Runtime) sweepLater(ctx context.Context) {
	found, services := r.lost, r.Services
	r.lost = leftovers{}
	if len(found.shims)+len(found.namespaces) > 0 {
		r.sweeping.Go(func() { r.sweep(ctx, services, found) })
	}
}

// sweep removes the leftovers that containerd does not know.
func (r *Runtime) sweep(ctx context.Context, services *Services, found leftovers) {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	known, err := knownIDs(ctx, services)
	if err != nil {
		r.config.Logger.Debug("cannot look for leftovers of the previous containerd", "error", err)
		return
	}
	for _, shim := range found.shims {
		if known[shim.id] {
			continue
		}
		r.config.Logger.Info("ending a shim that a killed containerd has lost", "pid", shim.pid, "id", shim.id)
		if err := shim.end(); err != nil {
			r.config.Logger.Warn("cannot end a shim that a killed containerd has lost", "pid", shim.pid, "error", err)
		}
	}
	unused := withoutProcess(found.namespaces)
	if len(unused) == 0 {
		return
	}
	owned, err := ownedNamespaces(ctx, services)
	if err != nil {
		r.config.Logger.Debug("cannot look for network namespaces of the previous containerd", "error", err)
		return
	}
	for _, path := range unused {
		if owned[path] {
			continue
		}
		r.config.Logger.Info("removing a network namespace that a killed containerd has lost", "path", path)
		if err := removeNamespace(path); err != nil {
			r.config.Logger.Warn("cannot remove a network namespace that a killed containerd has lost", "path", path, "error", err)
		}
	}
}

// knownIDs returns the ids of all sandboxes and containers, once containerd has recovered them.
func knownIDs(ctx context.Context, services *Services) (map[string]bool, error) {
	for {
		known := map[string]bool{}
		sandboxes, err := services.Runtime.ListPodSandbox(ctx, nil)
		for _, s := range sandboxes {
			known[s.Id] = true
		}
		if err == nil {
			containers, listErr := services.Runtime.ListContainers(ctx, nil)
			for _, c := range containers {
				known[c.Id] = true
			}
			if err = listErr; err == nil {
				return known, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// end kills the shim and its children.
func (s lostShim) end() error {
	pidfd, err := unix.PidfdOpen(s.pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(pidfd)
	if started, err := startTime(s.pid); err != nil || started != s.started {
		return nil // it ended, and another process has the pid
	}
	// A stopped shim makes no more children.
	if err := unix.PidfdSendSignal(pidfd, unix.SIGSTOP, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", s.pid))
	if err != nil {
		return err
	}
	for _, file := range tasks {
		children, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for _, text := range strings.Fields(string(children)) {
			if pid, err := strconv.Atoi(text); err == nil {
				// Its parent has not reaped it, so the pid is its own.
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
	}
	if err := unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	if !ended(pidfd, stopTimeout) {
		return errors.New("it does not end")
	}
	return nil
}

// withoutProcess returns the mounted network namespaces that no process is in.
func withoutProcess(paths []string) []string {
	if len(paths) == 0 {
		return nil
	}
	used := map[uint64]bool{}
	links, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return nil
	}
	var st unix.Stat_t
	for _, link := range links {
		if unix.Stat(link, &st) == nil {
			used[st.Ino] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(paths), func(path string) bool {
		return unix.Stat(path, &st) != nil || used[st.Ino]
	})
}

// ownedNamespaces returns the paths of the network namespaces of all sandboxes.
func ownedNamespaces(ctx context.Context, services *Services) (map[string]bool, error) {
	sandboxes, err := services.Runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		return nil, err
	}
	owned := map[string]bool{}
	for _, s := range sandboxes {
		response, err := services.Runtime.PodSandboxStatus(ctx, s.Id, true)
		if err != nil {
			return nil, err
		}
		var info struct {
			RuntimeSpec struct {
				Linux struct {
					Namespaces []struct{ Type, Path string }
				}
			}
		}
		if err := json.Unmarshal([]byte(response.Info["info"]), &info); err != nil {
			return nil, fmt.Errorf("sandbox %s: %w", s.Id, err)
		}
		for _, namespace := range info.RuntimeSpec.Linux.Namespaces {
			if namespace.Type == "network" {
				owned[namespace.Path] = true
			}
		}
	}
	return owned, nil
}

// removeNamespace unmounts a network namespace and removes the file below the mount.
func removeNamespace(path string) error {
	if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
