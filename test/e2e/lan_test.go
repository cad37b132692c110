package e2e

import (
	"fmt"
	"os/exec"
	"testing"
)

// lan is a switch in a network namespace of its own, which machines are plugged into.
type lan struct {
	t      *testing.T
	space  *exec.Cmd
	hosts  map[string]int // the last byte of the address, by machine
	serial int
}

func newLAN(t *testing.T) *lan {
	t.Helper()
	l := &lan{t: t, space: namespace(t), hosts: map[string]int{}}
	ip(t, l.space, "link add lan type bridge")
	ip(t, l.space, "link set lan up")
	t.Cleanup(func() { _ = l.space.Process.Kill(); _ = l.space.Wait() })
	return l
}

// plug gives the machine a cable to the switch, and always the same address.
func (l *lan) plug(m *machine) {
	l.t.Helper()
	if l.hosts[m.name] == 0 {
		l.hosts[m.name] = len(l.hosts) + 1
	}
	l.serial++
	port := fmt.Sprintf("port%d", l.serial) // the cable of a machine that crashed goes away in its own time
	m.ip(fmt.Sprintf("link add uplink type veth peer name %s netns %d", port, l.space.Process.Pid))
	ip(l.t, l.space, "link set "+port+" master lan up")
	m.ip("addr add " + l.address(m) + "/24 dev uplink")
	m.ip("link set uplink up")
}

func (l *lan) address(m *machine) string { return fmt.Sprintf("192.168.88.%d", l.hosts[m.name]) }
