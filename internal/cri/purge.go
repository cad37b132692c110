package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// Purge ends every pod of the included runtime and the runtime itself, and removes its folders under DataDir and RunDir. No
// knarr may run on them; the pod network is purged apart. What cannot be removed is an error that names it; the rest is removed
// nevertheless.
func Purge(ctx context.Context, config Config) error {
	config, err := config.complete()
	if err != nil {
		return err
	}
	if _, err := os.Stat(config.root()); err == nil {
		// What this does not end is killed below, so its errors need no answer. (The CNI plugin, for one, has nobody to talk to.)
		if err := stopAllPods(ctx, config); err != nil {
			config.Logger.Debug("purge: not every pod ended in good order", "error", err)
		}
	}
	killContainers(config)
	killPrograms(config)
	var problems []error
	for _, dir := range []string{config.root(), config.binDir(), config.RunDir, config.shimSocketDir()} {
		// Never remove what is still mounted: it may be somebody's data.
		err := UnmountBelow(dir)
		if err == nil {
			err = os.RemoveAll(dir)
		}
		problems = append(problems, err)
	}
	_ = os.Remove("/run/knarr") // when this was the last cluster of the machine
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("purge container runtime: %w", err)
	}
	return nil
}

// stopAllPods lets containerd take its pods down, many at a time.
func stopAllPods(ctx context.Context, config Config) error {
	running, cancel := context.WithCancel(ctx)
	runtime, err := Start(running, config)
	if err != nil {
		cancel()
		return err
	}
	defer runtime.Wait()
	defer cancel()
	sandboxes, err := runtime.Runtime.ListPodSandbox(ctx, nil)
	if err != nil {
		return err
	}
	var pods errgroup.Group
	pods.SetLimit(16)
	for _, sandbox := range sandboxes {
		pods.Go(func() error {
			err := runtime.Runtime.StopPodSandbox(ctx, sandbox.Id)
			if err == nil {
				err = runtime.Runtime.RemovePodSandbox(ctx, sandbox.Id)
			}
			if err != nil {
				return fmt.Errorf("pod %s/%s: %w", sandbox.Metadata.Namespace, sandbox.Metadata.Name, err)
			}
			return nil
		})
	}
	return pods.Wait()
}

// killContainers ends the first process of every container that runc still has a state of, and with it, for those with a PID
// namespace of their own, all others.
func killContainers(config Config) {
	states, err := filepath.Glob(filepath.Join(config.runcState(), "*", "*", "state.json"))
	if err != nil {
		return
	}
	for _, file := range states {
		content, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		var state struct {
			PID   int    `json:"init_process_pid"`
			Start uint64 `json:"init_process_start"`
		}
		if json.Unmarshal(content, &state) != nil || state.PID == 0 {
			continue
		}
		// The start time keeps a reused pid from being taken for it.
		if started, err := startTime(state.PID); err == nil && strings.HasSuffix(started, " "+strconv.FormatUint(state.Start, 10)) {
			_ = syscall.Kill(state.PID, syscall.SIGKILL)
		}
	}
}

// killPrograms ends what still runs one of our programs: shims whose pods could not be stopped.
func killPrograms(config Config) {
	for range 100 {
		found := false
		for _, pid := range programPIDs(config.binDir()) {
			found = true
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		if !found {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// programPIDs lists the processes whose executable lies below dir. A path alone does not tell:
// processes of other mount namespaces have other files behind the same path, so the files' device
// counts too.
func programPIDs(dir string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	ours, err := deviceOf(dir)
	if err != nil {
		return nil
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		link := filepath.Join("/proc", entry.Name(), "exe")
		program, err := os.Readlink(link)
		if err != nil || !strings.HasPrefix(program, dir+"/") {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(link, &st) == nil && st.Dev == ours {
			pids = append(pids, pid)
		}
	}
	return pids
}

// deviceOf is the device of a folder, or of the nearest one above it that exists.
func deviceOf(dir string) (uint64, error) {
	for {
		var st unix.Stat_t
		err := unix.Stat(dir, &st)
		if err == nil {
			return st.Dev, nil
		}
		if dir == "/" || !errors.Is(err, unix.ENOENT) {
			return 0, err
		}
		dir = filepath.Dir(dir)
	}
}
