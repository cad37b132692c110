package e2e

import (
	"fmt"
	"testing"
)

// lan is a switch in its own network namespace, which connects machines.
type lan struct {
	t      *testing.T
	space  *space
	hosts  map[string]int // last byte of the address by machine
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

// plug connects the machine to the switch; it always gets the same address.
func (l *lan) plug(m *machine) {
	l.t.Helper()
	if l.hosts[m.name] == 0 {
		l.hosts[m.name] = len(l.hosts) + 1
	}
	l.serial++
	// A new name, since the link of a crashed machine disappears with a delay.
	port := fmt.Sprintf("port%d", l.serial)
	m.ip(fmt.Sprintf("link add uplink type veth peer name %s netns %d", port, l.space.pid))
	l.space.ip(l.t, "link set "+port+" master lan up")
	m.ip("addr add " + l.address(m) + "/24 dev uplink")
	m.ip("link set uplink up")
}

func (l *lan) address(m *machine) string { return fmt.Sprintf("192.168.88.%d", l.hosts[m.name]) }
