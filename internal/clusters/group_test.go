package clusters

import (
	"os/exec"
	"syscall"
)

// group gives a program a process group of its own, which killGroup ends with all its children.
var group = &syscall.SysProcAttr{Setpgid: true}

func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
