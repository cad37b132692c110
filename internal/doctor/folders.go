package doctor

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/config"
	"github.com/knarr-project/knarr/internal/volume/local"
)

// Free space of the data folder's file system in bytes. Below leastSpace the store cannot write.
// Below scarceSpace or a tenth of the file system pods may be evicted.
const (
	leastSpace  = 64e6
	scarceSpace = 2e9
)

// checkDataFolder checks that the data folder can be made and written and has space.
func checkDataFolder(dir string) Finding {
	const what = "data folder"
	if err := tryWrite(dir); err != nil {
		return Finding{Broken, what, err.Error(), remedyFor(err, "--data-dir")}
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(nearest(dir), &fs); err != nil {
		return Finding{Broken, what, fmt.Sprintf("%s: %v", dir, err), "choose another folder with --data-dir"}
	}
	free, size := float64(fs.Bavail)*float64(fs.Bsize), float64(fs.Blocks)*float64(fs.Bsize)
	return judgeSpace(dir, free, size)
}

func judgeSpace(dir string, free, size float64) Finding {
	const what = "data folder"
	found := fmt.Sprintf("%s, %.1f GB free", dir, free/1e9)
	switch {
	case free < leastSpace:
		return Finding{Broken, what, fmt.Sprintf("%s, %.0f MB free", dir, free/1e6), fmt.Sprintf("free at least %.0f MB there, or choose another folder with --data-dir", leastSpace/1e6)}
	case free < scarceSpace || free < 0.1*size:
		return Finding{Degraded, what, found, "below 10 % or 2 GB: pods may be evicted for disk pressure; free some space or choose another folder with --data-dir"}
	}
	return Finding{Fine, what, found, ""}
}

// checkVolumeSizes says how the sizes of local volumes are enforced on this machine. None of the
// answers keeps a node from working.
func checkVolumeSizes(cfg *config.Config) Finding {
	var found []string
	folders := cfg.LocalFolders()
	for _, name := range slices.Sorted(maps.Keys(folders)) {
		found = append(found, name+": "+local.Enforcement(nearest(folders[name])))
	}
	return Finding{Fine, "sizes of volumes", strings.Join(found, "; "), ""}
}

// checkPrograms checks that programs in the data folder can be run, because the container runtime
// is unpacked there.
func checkPrograms(dir string) Finding {
	const what = "programs"
	var fs unix.Statfs_t
	if err := unix.Statfs(nearest(dir), &fs); err == nil && fs.Flags&unix.ST_NOEXEC != 0 {
		return Finding{Broken, what, dir + " is on a file system mounted with noexec", "mount -o remount,exec it, or choose another folder with --data-dir: the container runtime runs from there"}
	}
	return Finding{Fine, what, "can run in " + dir, ""}
}

// checkRunFolder checks that the folder for sockets can be made and written.
func checkRunFolder(dir string) Finding {
	const what = "run folder"
	if err := tryWrite(dir); err != nil {
		return Finding{Broken, what, err.Error(), remedyFor(err, "--run-dir")}
	}
	return Finding{Fine, what, dir, ""}
}

// tryWrite creates and removes a file in the folder, or in its nearest existing parent.
func tryWrite(dir string) error {
	at := nearest(dir)
	info, err := os.Stat(at)
	if err == nil && !info.IsDir() {
		return fmt.Errorf("%s is not a folder", at)
	}
	f, err := os.CreateTemp(at, ".knarr-check-")
	if err != nil {
		var cause *os.PathError
		if errors.As(err, &cause) {
			return fmt.Errorf("%s cannot be written: %w", at, cause.Err)
		}
		return err
	}
	_ = f.Close()
	return os.Remove(f.Name())
}

func remedyFor(err error, flag string) string {
	other := "choose another folder with " + flag
	switch {
	case errors.Is(err, unix.EROFS):
		return "mount it for writing (mount -o remount,rw), or " + other
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		return "free some space there, or " + other
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return "run as the user that may write there (root), or " + other
	}
	return other
}

// nearest returns the folder or its nearest existing parent.
func nearest(dir string) string {
	for {
		if _, err := os.Stat(dir); err == nil || dir == filepath.Dir(dir) {
			return dir
		}
		dir = filepath.Dir(dir)
	}
}
