package cri

import (
	"context"
	"errors"
	"strings"
	"time"

	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	internalapi "k8s.io/cri-api/pkg/apis"
)

// endTaskTime limits the wait for the end of a lost task's processes.
const endTaskTime = 10 * time.Second

// withTasks is a runtime that also removes containers with a lost task. containerd's CRI gives up a
// start when its caller is gone. If it then fails to end the task, it takes the container for ended
// while the task runs: it neither stops nor removes it.
type withTasks struct {
	internalapi.RuntimeService
	endpoint string
}

// RemoveContainer removes a container that does not run.
func (w withTasks) RemoveContainer(ctx context.Context, id string) error {
	err := w.RuntimeService.RemoveContainer(ctx, id)
	if status.Code(err) != codes.FailedPrecondition {
		return err
	}
	if endErr := w.endTask(ctx, id); endErr != nil {
		if status.Code(endErr) == codes.Unimplemented {
			return err // another runtime than containerd
		}
		return errors.Join(err, endErr)
	}
	return w.RuntimeService.RemoveContainer(ctx, id)
}

// endTask kills the processes of a container through containerd's own API, and deletes its task.
func (w withTasks) endTask(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, "containerd-namespace", "k8s.io"), endTaskTime)
	defer cancel()
	connection, err := grpc.NewClient("unix:"+strings.TrimPrefix(w.endpoint, "unix://"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	client := tasks.NewTasksClient(connection)
	for {
		if _, err := client.Kill(ctx, &tasks.KillRequest{ContainerID: id, Signal: uint32(unix.SIGKILL), All: true}); err != nil && status.Code(err) != codes.NotFound {
			return err
		}
		_, err := client.Delete(ctx, &tasks.DeleteTaskRequest{ContainerID: id})
		if err == nil || status.Code(err) == codes.NotFound {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond): // until the processes have ended
		}
	}
}
