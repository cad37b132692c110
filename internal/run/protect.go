package run

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/knarr-project/knarr/internal/kubelet/settings"
)

// protect keeps this process and its children from being ended for pods' memory, and gives them
// enough files. Children inherit both; containers get scores of their own.
func protect(s *settings.Settings, log *slog.Logger) {
	if err := setOOMScore(os.Getpid(), int(*s.OOMScoreAdj)); err != nil {
		// `knarr doctor` and the start's remark name the missing capability.
		log.Debug("cannot set this process's OOM score", "oomScoreAdj", *s.OOMScoreAdj, "error", err)
	}
	if err := raiseOpenFiles(uint64(s.MaxOpenFiles)); err != nil {
		log.Info("cannot raise the limit of open files to maxOpenFiles", "maxOpenFiles", s.MaxOpenFiles, "error", err)
	}
}

// setOOMScore sets the kernel's inclination to end a process when memory is short.
func setOOMScore(pid, score int) error {
	err := os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(strconv.Itoa(score)), 0o644)
	if errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("CAP_SYS_RESOURCE is missing: %w", err)
	}
	return err
}

// raiseOpenFiles raises the limit of open files, as far as the hard limit allows without the
// capability to raise that too. It never lowers a limit.
func raiseOpenFiles(want uint64) error {
	var have unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &have); err != nil {
		return err
	}
	if have.Cur >= want {
		return nil
	}
	err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: want, Max: max(have.Max, want)})
	if err == nil || have.Cur >= have.Max {
		return err
	}
	return errors.Join(err, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: have.Max, Max: have.Max}))
}
