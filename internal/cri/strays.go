package cri

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// strays returns the running containerds of this run folder other than the given process. knarr may
// have been killed after it started a containerd and before it wrote the record. The caller holds
// the lock, which a forked child shares until it has become containerd.
func strays(config Config, except int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && pid != except && isContainerdOf(config, pid) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// isContainerdOf reports whether the process is a containerd with the configuration file of this
// run folder. A process in another mount namespace may have another folder of the same name.
func isContainerdOf(config Config, pid int) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return false
	}
	args := bytes.Split(line, []byte{0})
	if len(args) < 3 || filepath.Base(string(args[0])) != "containerd" || string(args[1]) != "--config" || string(args[2]) != config.configFile() {
		return false
	}
	theirs, err := os.Stat(filepath.Join(fmt.Sprintf("/proc/%d/root", pid), config.RunDir))
	if err != nil {
		return false
	}
	ours, err := os.Stat(config.RunDir)
	return err == nil && os.SameFile(theirs, ours)
}

// stopStrays stops the containerds that no record names. Their containers keep running.
func stopStrays(config Config, except int) error {
	pids, err := strays(config, except)
	if err != nil {
		return fmt.Errorf("look for another containerd: %w", err)
	}
	for _, pid := range pids {
		config.Logger.Warn("stopping a containerd that an interrupted start has left", "pid", pid)
		if err := stopStray(config, pid); err != nil {
			return fmt.Errorf("stop the containerd %d that an interrupted start has left: %w", pid, err)
		}
	}
	return nil
}

func stopStray(config Config, pid int) error {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(pidfd)
	if !isContainerdOf(config, pid) {
		return nil // it ended, and another process has the pid
	}
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		if err := unix.PidfdSendSignal(pidfd, s, nil, 0); err != nil {
			if errors.Is(err, unix.ESRCH) {
				return nil
			}
			return err
		}
		if ended(pidfd, stopTimeout) {
			return nil
		}
	}
	return errors.New("it does not end")
}

// ended waits until the process has ended, at most for the timeout.
func ended(pidfd int, timeout time.Duration) bool {
	deadline := time.Now().Add(timeout)
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return false
		}
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(left.Milliseconds())+1)
		if n > 0 || (err != nil && !errors.Is(err, unix.EINTR)) {
			return n > 0
		}
	}
}

// answers reports whether the process accepts connections on the socket. Another process's answer,
// such as that of an earlier containerd, does not count.
func answers(socket string, pid int) bool {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return false
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return false
	}
	var listener *unix.Ucred
	if e := raw.Control(func(fd uintptr) { listener, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); e != nil || err != nil {
		return false
	}
	return int(listener.Pid) == pid
}
