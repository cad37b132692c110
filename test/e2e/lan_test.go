package e2e

import (
	"fmt"
	"testing"
)

// lan is a switch in a network namespace of its own, which machines are plugged into.
type lan struct {
	t      *testing.T
	space  *space
	hosts  map[string]int // the last byte of the address, by machine
	serial int
}

func newLAN(t *testing.T) *lan {
	t.Helper()
	l := &lan{t: t, space: newSpace(t, "--net"), hosts: map[string]int{}}
	t.Cleanup(l.space.end)
	l.space.ip(t, "link add lan type bridge")
	l.space.ip(t, "link set lan up")
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
	m.ip(fmt.Sprintf("link add uplink type veth peer name %s netns %d", port, l.space.pid))
	l.space.ip(l.t, "link set "+port+" master lan up")
	m.ip("addr add " + l.address(m) + "/24 dev uplink")
	m.ip("link set uplink up")
}

func (l *lan) address(m *machine) string { return fmt.Sprintf("192.168.88.%d", l.hosts[m.name]) }
