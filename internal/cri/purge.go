package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Purge ends every pod of the included runtime and the runtime itself, and removes its folders under DataDir and RunDir. No
// knarr may run on them. What cannot be removed is an error that names it; the rest is removed nevertheless.
func Purge(ctx context.Context, config Config) error {
	config, err := config.complete()
	if err != nil {
		return err
	}
	var problems []error
	if _, err := os.Stat(config.root()); err == nil {
		if err := stopAllPods(ctx, config); err != nil {
			problems = append(problems, err)
		}
	}
	killPrograms(config)
	problems = append(problems, unmountBelow(config.RunDir), unmountBelow(config.root()))
	for _, dir := range []string{config.root(), config.binDir(), config.RunDir, config.shimSocketDir()} {
		problems = append(problems, os.RemoveAll(dir))
	}
	_ = os.Remove("/run/knarr") // when this was the last cluster of the machine
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("purge container runtime: %w", err)
	}
	return nil
}

// stopAllPods goes through CRI, so that the pod network is told.
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
	var problems []error
	for _, sandbox := range sandboxes {
		err := runtime.Runtime.StopPodSandbox(ctx, sandbox.Id)
		if err == nil {
			err = runtime.Runtime.RemovePodSandbox(ctx, sandbox.Id)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("pod %s/%s: %w", sandbox.Metadata.Namespace, sandbox.Metadata.Name, err))
		}
	}
	return errors.Join(problems...)
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

// programPIDs lists the processes whose executable lies below dir.
func programPIDs(dir string) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		program, err := os.Readlink(filepath.Join("/proc", entry.Name(), "exe"))
		if err == nil && strings.HasPrefix(program, dir+"/") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// unmountBelow detaches every mount below dir, the innermost first.
func unmountBelow(dir string) error {
	mounts, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	var problems []error
	for _, mount := range slices.Backward(mounts) {
		if err := unix.Unmount(mount, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
			problems = append(problems, fmt.Errorf("unmount %s: %w", mount, err))
		}
	}
	return errors.Join(problems...)
}

// mountsBelow lists mount points under dir in the order they were mounted.
func mountsBelow(dir string) ([]string, error) {
	content, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var mounts []string
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		if point := unescape.Replace(fields[4]); strings.HasPrefix(point, dir+"/") {
			mounts = append(mounts, point)
		}
	}
	return mounts, nil
}
