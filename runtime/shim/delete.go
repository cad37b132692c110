package main

import (
	"os"
	"path/filepath"

	task "github.com/containerd/containerd/api/runtime/task/v3"
	"github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2/runc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// deleted prepares the answer to containerd's next question: after every container it executes the shim's program to clean up, as if
// the shim could have died. The file lets detach.c answer before Go begins. Without it, all is looked at.
func deleted(bundle string) {
	exit, err := runc.ReadExitStatus(bundle)
	if err != nil {
		return // it never ran
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
