package clusters

import (
	"fmt"
	"os"
	"strings"
)

// Identity identifies a process forever: the boot's id and the start time from /proc/PID/stat in
// clock ticks since boot. It fails for a process that has ended, including zombies.
func Identity(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The program's name is in parentheses, and may contain parentheses.
	end := strings.LastIndexByte(string(stat), ')')
	fields := strings.Fields(string(stat)[end+1:])
	if end < 0 || len(fields) < 20 {
		return "", fmt.Errorf("/proc/%d/stat: cannot read %q", pid, stat)
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return "", fmt.Errorf("process %d has ended", pid)
	}
	boot, err := bootID()
	if err != nil {
		return "", err
	}
	return boot + " " + fields[19], nil
}

func bootID() (string, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(boot)), err
}

func hasBoot(identity, boot string) bool {
	was, _, _ := strings.Cut(identity, " ")
	return was == boot
}

// SameNetwork reports whether a process is in the same network namespace as this one. If this user
// may not check, it assumes so.
func SameNetwork(pid int) bool {
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return true
	}
	other, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	return err != nil || own == other
}
