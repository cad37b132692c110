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

// Purge ends every pod of the included runtime and the runtime itself, and removes its folders
// under DataDir and RunDir. No knarr may run on these folders; the pod network is purged
// separately. If something cannot be removed, the error names it, and everything else is removed.
func Purge(ctx context.Context, config Config) error {
	config, err := config.complete()
	if err != nil {
		return err
	}
	if _, err := os.Stat(config.root()); err == nil {
		// Pods that this does not end are killed below, so errors are only logged. The CNI plugin,
		// for example, fails without a node agent.
		if err := stopAllPods(ctx, config); err != nil {
			config.Logger.Debug("purge: not every pod ended in good order", "error", err)
		}
	}
	killContainers(config)
	killPrograms(config)
	var problems []error
	for _, dir := range []string{config.root(), config.binDir(), config.RunDir, config.shimSocketDir()} {
		// Never remove mounted content: it may be user data.
		err := UnmountBelow(dir)
		if err == nil {
			err = os.RemoveAll(dir)
		}
		problems = append(problems, err)
	}
	_ = os.Remove("/run/knarr") // succeeds if this was the machine's last cluster
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("purge container runtime: %w", err)
	}
	return nil
}

// stopAllPods asks containerd to stop its pods, many at a time.
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

// killContainers kills the first process of every container of which runc has a state. In a
// container with its own PID namespace, this ends all other processes.
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
		// The start time excludes another process with a reused pid.
		if started, err := startTime(state.PID); err == nil && strings.HasSuffix(started, " "+strconv.FormatUint(state.Start, 10)) {
			_ = syscall.Kill(state.PID, syscall.SIGKILL)
		}
	}
}

// killPrograms kills remaining processes of the included programs: shims of pods that could not be
// stopped.
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

// programPIDs lists the processes whose executable is below dir. In other mount namespaces the same
// path can be a different file, so the device must match too.
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

// deviceOf returns the device of a folder or of its nearest existing parent.
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
