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
	// lookAgain and patience are how often the file of a container that has ended is looked at, and for how long, until its writer has closed it.
	lookAgain, patience = 2 * time.Millisecond, 2 * time.Second
)

// Complete waits until all is in the log of a container that has ended. The runtime tells the end when it has taken the last output, and writes that down
// beside it: who is told and reads at once may come before. The writer closes the file when it is done, and the kernel tells whether anybody has a
// file open for writing (fcntl(2), F_SETLEASE). Where it can not tell, and after two seconds, the log is taken as it is.
func Complete(ctx context.Context, path string) {
	f, err := os.Open(path)
	if err != nil {
		return
	}
	defer f.Close()
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for written(f) {
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return
		}
	}
}

// written: somebody has the file open for writing.
func written(f *os.File) bool {
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		return errors.Is(err, unix.EAGAIN)
	}
	_, _ = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	return false
}

// Following is a runtime for who follows the log: it tells that a container has ended once the log is complete.
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
