package clusters

import (
	"os/exec"
	"syscall"
)

// group starts a program in its own process group. killGroup kills the program with all its
// children.
var group = &syscall.SysProcAttr{Setpgid: true}

func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
