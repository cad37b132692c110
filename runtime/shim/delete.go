package main

import (
	"os"
	"path/filepath"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/runc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// deleted prepares the answer to containerd's next request. After every container, containerd
// executes the shim's program to clean up, in case the shim has died. With the file that deleted
// writes, detach.c answers before Go starts. Without the file, the full clean-up runs.
func deleted(bundle string) {
	exit, err := runc.ReadExitStatus(bundle)
	if err != nil {
		return // the container never ran
	}
	answer, err := proto.Marshal(&task.DeleteResponse{
		Pid: uint32(exit.Pid), ExitStatus: uint32(exit.Status), ExitedAt: timestamppb.New(exit.Timestamp),
	})
	if err != nil {
		return
	}
	path := filepath.Join(bundle, "deleted")
	if os.WriteFile(path+".new", answer, 0o600) == nil {
		_ = os.Rename(path+".new", path)
	}
}
