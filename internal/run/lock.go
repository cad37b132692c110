package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/doctor"
)

// lockFile is locked by the knarr process that runs on a data folder. It contains the pid.
const lockFile = doctor.LockFile

// errLocked means that a knarr process runs on the data folder.
var errLocked = errors.New("another knarr")

// lock locks the data folder for this process. The lock ends with the process, even after a crash.
func lock(dataDir string) (*os.File, error) {
	if err := os.MkdirAll(dataDir, 0o755); err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dataDir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w (process %s) runs on %s: stop it, or choose another folder with --data-dir", errLocked, holder(dataDir), dataDir)
		}
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	if err := errors.Join(f.Truncate(0), writeAt(f, strconv.Itoa(os.Getpid()))); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func writeAt(f *os.File, s string) error {
	_, err := f.WriteAt([]byte(s), 0)
	return err
}

func holder(dataDir string) string {
	data, err := os.ReadFile(filepath.Join(dataDir, lockFile))
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(data))
}

// holderPatience is how long a locked folder may seem to have no process. A process that ends by
// itself, such as a removed server, cannot be seen a moment before its lock is free.
var holderPatience = time.Second

// stopHolder stops the knarr process that runs on the data folder, if any, and waits until it has
// ended.
func stopHolder(ctx context.Context, dataDir string) error {
	const stopTimeout = 30 * time.Second
	path := filepath.Join(dataDir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	free := func() bool { return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil }
	pid := 0
	for seen := time.Now().Add(holderPatience); pid == 0; {
		if free() {
			return nil
		}
		if pid = doctor.Holder(dataDir); pid != 0 {
			break
		}
		if time.Now().After(seen) {
			// It may be in another PID namespace, where the pid means another process.
			return fmt.Errorf("%s is locked by a process that cannot be seen from here: stop it first", path)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err := unix.Kill(pid, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("stop process %d: %w", pid, err)
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	for !free() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("process %d did not end within %s", pid, stopTimeout)
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}
