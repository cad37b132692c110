package shutdown

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Halting reports whether the machine goes down, as its init system says: systemd, OpenRC or SysV
// init. It also does if this is process 1, which takes all others with it.
func Halting() bool { return halting("/", os.Getpid()) }

func halting(root string, pid int) bool {
	if pid == 1 {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if is, ok := stopping(ctx, "unix:path="+filepath.Join(root, "run/systemd/private")); ok {
		return is
	}
	// OpenRC keeps the name of the runlevel that it enters.
	if level := strings.TrimSpace(string(readSome(filepath.Join(root, "run/openrc/softlevel")))); level != "" {
		return level == "shutdown" || level == "reboot"
	}
	switch runlevel(readSome(filepath.Join(root, "run/utmp"))) {
	case '0', '6':
		return true
	}
	return false
}

// Layout of utmp(5) on all of Linux' 64-bit architectures.
const (
	utmpSize    = 384
	utmpRunlevl = 1
)

// runlevel returns the runlevel in the login records, or 0. SysV init keeps it in the low byte of
// the process ID of a record of its own.
func runlevel(utmp []byte) (level byte) {
	for ; len(utmp) >= utmpSize; utmp = utmp[utmpSize:] {
		if utmp[0] == utmpRunlevl && bytes.Equal(utmp[1:4], []byte{0, 0, 0}) {
			level = utmp[4]
		}
	}
	return level
}

// readSome reads the first megabyte of a file.
func readSome(path string) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	data, _ := io.ReadAll(io.LimitReader(f, 1<<20))
	return data
}
