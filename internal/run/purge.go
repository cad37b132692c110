package run

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/cri"
	"github.com/knarr-project/knarr/internal/kubelet/logs"
	"github.com/knarr-project/knarr/internal/kubelet/shutdown"
	"github.com/knarr-project/knarr/internal/network"
	"github.com/knarr-project/knarr/internal/volume/local"
)

// Purge stops the knarr process of the data folder with its pods, and removes everything that they
// left: containers, mounts, links, rules, cgroups, sockets, files. It continues after errors and
// returns all of them.
func Purge(ctx context.Context, cfg *config.Config, log *slog.Logger) error {
	var errs []error
	step := func(what string, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", what, err))
		}
		log.Debug("purged", "what", what, "error", err)
	}
	step("knarr", stopHolder(ctx, cfg.DataDir))
	setNodePaths(cfg)
	step("containers", cri.Purge(ctx, cri.Config{DataDir: cfg.DataDir, RunDir: cfg.RunDir, Logger: log}))
	step("local volumes", local.Purge(localFolderList(cfg)))
	step("pod network", network.Purge(networkConfig(cfg, nil)))
	step("cgroups", removeCgroups(ctx, cfg.CgroupRoot))
	step("container logs", logs.Purge(cfg.Path("kubelet")))
	step("kubelet folder", releaseKubeletDir(cfg.DataDir))
	step("logind's settings", shutdown.Purge())
	for what, dir := range map[string]string{"data folder": cfg.DataDir, "run folder": cfg.RunDir} {
		// Content that is still mounted below may be user data, so a folder is only removed when
		// nothing is mounted.
		err := cri.UnmountBelow(dir)
		if err == nil {
			err = removeFolder(dir)
		}
		step(what, err)
	}
	step("name", here().Forget(cfg.DataDir))
	_ = os.Remove("/run/knarr") // other clusters' parent folder; fails unless empty
	return errors.Join(errs...)
}

// localFolderList is the file that lists the node's folders for volumes. They may be on other
// disks.
func localFolderList(cfg *config.Config) string { return cfg.Path("kubelet", "local-folders.json") }

// removeFolder removes a folder with its content. A mount point is emptied but stays, because its
// owner may need it.
func removeFolder(dir string) error {
	err := os.RemoveAll(dir)
	if left, _ := os.ReadDir(dir); errors.Is(err, unix.EBUSY) && len(left) == 0 {
		return nil
	}
	return err
}

// removeCgroups removes our cgroup of every controller, the deepest first. Processes still in it
// are ours and are killed.
func removeCgroups(ctx context.Context, root string) error {
	if root = strings.Trim(root, "/"); root == "" {
		return nil // at the top, pods' cgroups are named kubepods
	}
	tops, err := filepath.Glob("/sys/fs/cgroup/*/" + root)
	if err != nil {
		return err
	}
	tops = append(tops, "/sys/fs/cgroup/"+root)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var errs []error
	for _, top := range tops {
		errs = append(errs, removeCgroup(ctx, top))
	}
	return errors.Join(errs...)
}

func removeCgroup(ctx context.Context, top string) error {
	var dirs []string
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	if err != nil || len(dirs) == 0 {
		return err
	}
	for _, dir := range slices.Backward(dirs) {
		for {
			err := unix.Rmdir(dir)
			if err == nil || errors.Is(err, unix.ENOENT) {
				break
			}
			killAll(filepath.Join(dir, "cgroup.procs"))
			select {
			case <-ctx.Done():
				return fmt.Errorf("remove cgroup %s: %w", dir, err)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return nil
}

func killAll(procs string) {
	data, err := os.ReadFile(procs)
	if err != nil {
		return
	}
	for _, line := range strings.Fields(string(data)) {
		var pid int
		if _, err := fmt.Sscan(line, &pid); err == nil && pid > 1 && pid != os.Getpid() {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}
