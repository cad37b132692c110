package clusters

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Stop sends SIGTERM to the process and returns when it has ended. waiting is called every five
// seconds with the time waited so far.
func (r *Record) Stop(ctx context.Context, timeout time.Duration, waiting func(waited time.Duration)) error {
	const progressInterval = 5 * time.Second
	pidfd, err := unix.PidfdOpen(r.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("process %d: %w", r.PID, err)
	}
	defer unix.Close(pidfd)
	if !r.alive() {
		return nil // another process had the pid by the time it was opened
	}
	switch err := unix.PidfdSendSignal(pidfd, unix.SIGTERM, nil, 0); {
	case errors.Is(err, unix.ESRCH):
		return nil
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("process %d is another user's: try sudo", r.PID)
	case err != nil:
		return fmt.Errorf("process %d: %w", r.PID, err)
	}
	began, reported := time.Now(), time.Duration(0)
	for r.alive() {
		waited := time.Since(began)
		if waited > timeout {
			return fmt.Errorf("process %d has not ended within %s: wait longer (--timeout), or end it at once with `kill -9 %d`", r.PID, timeout, r.PID)
		}
		if waited-reported >= progressInterval {
			reported = waited
			waiting(waited)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("process %d is still stopping", r.PID)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}
