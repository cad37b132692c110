package logs

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
	internalapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// pollInterval is the interval and pollTimeout the time limit for waiting until the writer
	// closes a log.
	pollInterval, pollTimeout = 2 * time.Millisecond, 2 * time.Second
)

// Complete waits until the log of an ended container is complete. The runtime reports the end when
// it has read the last output, while it still writes that output to the log. A reader that is
// notified at once could therefore miss the last lines.
//
// The writer closes the file when it is done, and the kernel can report whether any process has the
// file open for writing (fcntl(2), F_SETLEASE). If the kernel cannot tell, or after two seconds,
// Complete returns anyway.
func Complete(ctx context.Context, path string) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	ctx, stop := context.WithTimeout(ctx, pollTimeout)
	defer stop()
	for written(f) {
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return
		}
	}
}

// written reports whether a process has the file open for writing.
func written(f *os.File) bool {
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		return errors.Is(err, unix.EAGAIN)
	}
	_, _ = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	return false
}

// Following is a runtime service for following a log. It reports the end of a container only once
// its log is complete.
type Following struct {
	internalapi.RuntimeService
	Path string
}

// ContainerStatus implements CRI.
func (r Following) ContainerStatus(ctx context.Context, id string, verbose bool) (*runtimeapi.ContainerStatusResponse, error) {
	resp, err := r.RuntimeService.ContainerStatus(ctx, id, verbose)
	if err == nil && resp.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
		Complete(ctx, r.Path)
	}
	return resp, err
}
