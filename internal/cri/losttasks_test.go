package cri

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"testing"

	tasks "github.com/containerd/containerd/api/services/tasks/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
	internalapi "k8s.io/cri-api/pkg/apis"
)

// stuck is a runtime with a container whose task runs although CRI takes it for ended.
type stuck struct {
	internalapi.RuntimeService
	calls []string
	dying int // calls of Delete until the processes have ended
}

// stuckTasks is containerd's own API of the same runtime.
type stuckTasks struct {
	tasks.UnimplementedTasksServer
	*stuck
}

func (s *stuck) RemoveContainer(context.Context, string) error {
	s.calls = append(s.calls, "remove")
	if s.dying >= 0 {
		return status.Error(codes.FailedPrecondition, "cannot delete running task")
	}
	return nil
}

func (s stuckTasks) Kill(ctx context.Context, r *tasks.KillRequest) (*emptypb.Empty, error) {
	if md, _ := metadata.FromIncomingContext(ctx); !slices.Equal(md.Get("containerd-namespace"), []string{"k8s.io"}) || r.ContainerID != "c" || !r.All || r.Signal != 9 {
		return nil, status.Errorf(codes.InvalidArgument, "%v %v", md, r)
	}
	s.calls = append(s.calls, "kill")
	return &emptypb.Empty{}, nil
}

func (s stuckTasks) Delete(context.Context, *tasks.DeleteTaskRequest) (*tasks.DeleteResponse, error) {
	s.calls = append(s.calls, "delete")
	if s.dying--; s.dying >= 0 {
		return nil, status.Error(codes.FailedPrecondition, "process still running")
	}
	return &tasks.DeleteResponse{}, nil
}

// serveTasks serves containerd's tasks, or nothing if s is nil, and returns the endpoint.
func serveTasks(t *testing.T, s *stuck) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	if s != nil {
		tasks.RegisterTasksServer(server, stuckTasks{stuck: s})
	}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(server.Stop)
	return "unix://" + socket
}

func TestAContainerWithALostTaskIsRemoved(t *testing.T) {
	s := &stuck{dying: 1}
	if err := (withTasks{s, serveTasks(t, s)}).RemoveContainer(t.Context(), "c"); err != nil {
		t.Error(err)
	}
	if want := []string{"remove", "kill", "delete", "kill", "delete", "remove"}; !slices.Equal(s.calls, want) {
		t.Errorf("calls %v; wanted %v", s.calls, want)
	}
}

func TestAnotherRuntimesRefusalIsReturned(t *testing.T) {
	s := &stuck{dying: 1}
	err := (withTasks{s, serveTasks(t, nil)}).RemoveContainer(t.Context(), "c")
	if status.Code(err) != codes.FailedPrecondition {
		t.Error(err)
	}
}
