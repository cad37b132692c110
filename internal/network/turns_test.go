package network

import (
	"fmt"
	"os"
	"testing"

	"github.com/knarr-project/knarr/internal/network/nettest"
)

// The link of a DEL goes in the background. An ADD of the same ID meanwhile has link, rules and
// file of its own, with the same names.
func TestAddWhileADelIsNotFinished(t *testing.T) {
	n := agent(t, nettest.NewObjects(node("a", "10.42.0.0/24", "127.0.0.1")), nil)
	ns := nettest.New(t)
	key := attachmentKey("one", "eth0")
	do := func(command string) {
		t.Helper()
		if reply, _ := cni(t, n, command, "one", ns, ""); reply.Code != 0 {
			t.Fatalf("%s: %s", command, reply.Stdout)
		}
	}
	do("ADD")
	n.mu.Lock()
	first := n.attachments[key]
	n.mu.Unlock()
	do("DEL")

	// The removal waits for the ADD, which has the turn.
	leave := n.turns.enter(key)
	removed := make(chan error, 1)
	go func() { removed <- n.removeLink(first) }()
	nettest.Eventually(t, "the removal waits", func() bool {
		n.turns.mu.Lock()
		defer n.turns.mu.Unlock()
		return n.turns.busy[key].users >= 2
	})
	second := *first
	second.IPs = nil
	if _, err := n.reserve(&second); err != nil {
		t.Fatal(err)
	}
	leave()
	if err := <-removed; err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(n.files.path(key)); err != nil {
		t.Errorf("the file of the second attachment: %v", err)
	}
	do("DEL") // reaches the second attachment, although the first may be in the list yet
	n.mu.Lock()
	left := n.attachments[key]
	n.mu.Unlock()
	if left != nil {
		t.Error("DEL has left the second attachment")
	}

	// All orders, with real links.
	for i := range 20 {
		do("ADD")
		if !linkExists(first.HostLink) {
			t.Fatalf("round %d: the link is missing", i)
		}
		do("CHECK")
		n.firewall.mu.Lock()
		_, checked := n.firewall.guards.sources[key]
		n.firewall.mu.Unlock()
		if !checked {
			t.Fatalf("round %d: the sender check is missing", i)
		}
		do("DEL")
		n.mu.Lock()
		waiting := append([]*attachment(nil), n.detached...)
		n.mu.Unlock()
		for _, a := range waiting {
			go func() { _ = n.removeLink(a) }() // beside reap and the next ADD
		}
	}
	nettest.Eventually(t, "nothing is left", func() bool {
		n.turns.mu.Lock()
		busy := len(n.turns.busy)
		n.turns.mu.Unlock()
		_, err := os.Stat(n.files.path(key))
		return busy == 0 && os.IsNotExist(err) && !linkExists(first.HostLink)
	})
	if n.turns.busy[key] != nil {
		t.Error(fmt.Errorf("a turn is left"))
	}
}
