package run

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/clusters"
	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/durable"
	"github.com/knarr-project/knarr/internal/volume"
)

const (
	// usualKubeletDir is the folder that manifests of CSI drivers and device plugins name.
	usualKubeletDir = "/var/lib/kubelet"
	// kubeletDirFile, in the data folder, names the folder that the cluster has taken.
	kubeletDirFile = "kubelet-dir"
)

// kubeletDir returns the node agent's folder. The content is always in DATA-DIR/kubelet; the other
// folder is a bind mount of it (ADR 0047).
func kubeletDir(cfg *config.Config, log *slog.Logger) (string, error) {
	own := cfg.Path("kubelet")
	if err := os.MkdirAll(own, 0o755); err != nil {
		return "", err
	}
	want := cfg.KubeletDir
	if want == "" && cfg.DataDir == clusters.DefaultDataDir {
		want = usualKubeletDir
	}
	if want == "" || want == own {
		return own, nil
	}
	err := takeKubeletDir(cfg.DataDir, own, want)
	if err == nil {
		return want, nil
	}
	if cfg.KubeletDir != "" {
		return "", fmt.Errorf("kubelet-dir: %w", err)
	}
	log.Warn("the node agent keeps its pods in the data folder; manifests of CSI drivers and device plugins need its path instead of "+usualKubeletDir,
		"path", own, "reason", err)
	return own, nil
}

// takeKubeletDir mounts own at want, unless something else uses want.
func takeKubeletDir(dataDir, own, want string) error {
	switch use, err := useOf(want, own); {
	case err != nil:
		return err
	case use == "own":
		return nil
	case use != "":
		return fmt.Errorf("%s is in use: %s", want, use)
	}
	if mounts, err := volume.MountsBelow(own); err != nil || len(mounts) > 0 {
		return errors.Join(err, fmt.Errorf("pods have volumes below %s; a start without running pods, such as after a reboot, moves them to %s", own, want))
	}
	if err := durable.WriteFile(filepath.Join(dataDir, kubeletDirFile), []byte(want+"\n")); err != nil {
		return err
	}
	if err := os.MkdirAll(want, 0o755); err != nil {
		return err
	}
	return volume.ShareAt(own, want)
}

// useOf describes the use of a folder: "" if it is free, "own" if it shows the folder own, else a
// reason. A mount of a removed data folder is taken away.
func useOf(dir, own string) (string, error) {
	var there, here unix.Stat_t
	err := unix.Lstat(dir, &there)
	if errors.Is(err, unix.ENOENT) {
		return "", nil
	}
	if err != nil {
		return "", &fs.PathError{Op: "lstat", Path: dir, Err: err}
	}
	if there.Mode&unix.S_IFMT != unix.S_IFDIR {
		return "it is not a directory", nil
	}
	if err := unix.Stat(own, &here); err != nil {
		return "", &fs.PathError{Op: "stat", Path: own, Err: err}
	}
	if there.Dev == here.Dev && there.Ino == here.Ino {
		return "own", nil
	}
	if there.Nlink == 0 { // the mount of a cluster whose data folder is gone
		if err := unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil {
			return "a removed folder is mounted there, and cannot be unmounted: " + err.Error(), nil
		}
	}
	mounts, err := volume.MountsBelow(dir)
	if err != nil {
		return "", err
	}
	if len(mounts) > 0 {
		return "a file system is mounted at " + mounts[0], nil
	}
	return foreign(dir)
}

// foreign names a file below dir, or returns "" if there are only folders and sockets.
func foreign(dir string) (string, error) {
	const limit = 10000
	found, seen := "", 0
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if seen++; seen > limit {
			found = "it has many folders"
		} else if !entry.IsDir() && entry.Type() != fs.ModeSocket {
			found = "it has " + path
		}
		if found != "" {
			return fs.SkipAll
		}
		return nil
	})
	return found, err
}

// releaseKubeletDir takes the mount away that kubeletDir has made for the data folder.
func releaseKubeletDir(dataDir string) error {
	content, err := os.ReadFile(filepath.Join(dataDir, kubeletDirFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	dir := strings.TrimSpace(string(content))
	if !filepath.IsAbs(dir) || len(dir) < 2 {
		return fmt.Errorf("%s: %q is not a path", kubeletDirFile, dir)
	}
	use, err := useOf(dir, filepath.Join(dataDir, "kubelet"))
	if err != nil || use != "own" {
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		return err
	}
	if err := volume.UnmountBelow(dir); err != nil {
		return err
	}
	_ = os.Remove(dir) // it stays if it has other content
	return nil
}
