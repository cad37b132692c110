package e2e

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// victim is the kind of process that a fault hits.
type victim string

const (
	knarrVictim      victim = "knarr"
	containerdVictim victim = "containerd"
	shimVictim       victim = "shim"
	pluginVictim     victim = "CNI plugin"
)

// fault is what a round does to a process of the node.
type fault struct {
	victim victim
	point  string        // of knarr; the fault waits for it
	visit  int           // how many visits of the point let pass before
	stop   time.Duration // SIGSTOP for this long; 0 means SIGKILL
	pick   int           // which shim
	delay  time.Duration // of the signal after the point, for other victims than knarr
}

func (f fault) String() string {
	what := "kill"
	if f.stop > 0 {
		what = fmt.Sprintf("stop for %v", f.stop)
	}
	return fmt.Sprintf("%s %s at %s, visit %d, %v later", what, f.victim, f.point, f.visit+1, f.delay)
}

// pointsOf lists the points at which a victim's end is of interest.
var pointsOf = map[victim][]string{
	knarrVictim: {
		"volumes-mounted", "sandbox-create", "sandbox-created", "container-create", "container-created", "container-started",
		"container-stop", "containers-stopped", "sandbox-stopped", "pod-delete", "pod-deleted", "sandbox-removed",
		"cni-reserved", "cni-added", "cni-delete", "cni-unrouted", "cni-unplugged",
		"tmpfs-mounted", "volumes-unmount", "volumes-unmounted", "token-request", "file-written",
		"local-made", "local-removing", "local-formatted", "local-attached", "image-pull", "image-pulled", "containerd-started",
	},
	containerdVictim: {
		"sandbox-create", "sandbox-created", "container-create", "container-created", "container-started", "container-stop",
		"containers-stopped", "pod-deleted", "cni-reserved", "cni-added", "cni-delete", "image-pull",
	},
	shimVictim: {
		"sandbox-created", "container-create", "container-created", "container-started", "container-stop", "containers-stopped", "cni-delete",
	},
	pluginVictim: {"cni-reserved", "cni-added", "cni-delete", "cni-unrouted"},
}

// draw chooses a fault.
func draw(random *rand.Rand) fault {
	f := fault{visit: random.IntN(4), pick: random.IntN(1000)}
	switch n := random.IntN(20); {
	case n < 10:
		f.victim = knarrVictim
	case n < 14:
		f.victim = containerdVictim
	case n < 17:
		f.victim = shimVictim
	default:
		f.victim = pluginVictim
	}
	points := pointsOf[f.victim]
	f.point = points[random.IntN(len(points))]
	if random.IntN(10) < 3 {
		f.stop = time.Duration(100+random.IntN(900)) * time.Millisecond
	}
	if f.victim == containerdVictim || f.victim == shimVictim {
		f.delay = time.Duration(random.IntN(60)) * time.Millisecond
	}
	if strings.HasPrefix(f.point, "local-") || strings.HasPrefix(f.point, "image-") || f.point == "containerd-started" {
		f.visit = 0
	}
	return f
}

// failpoints is the controller of knarr's points: it decides what happens when one is reached.
type failpoints struct {
	socket   string
	listener net.Listener

	mu      sync.Mutex // guards what follows
	armed   *fault
	left    int               // visits before the fault
	reached chan net.Conn     // gets the connection of the point of the fault
	visits  map[string]int    // by point, over all rounds
	held    map[net.Conn]bool // points that wait
}

func listenFailpoints(t *testing.T) *failpoints {
	t.Helper()
	dir, err := os.MkdirTemp("", "knarr-fp-") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	f := &failpoints{socket: filepath.Join(dir, "s"), visits: map[string]int{}, held: map[net.Conn]bool{}}
	if f.listener, err = net.Listen("unix", f.socket); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		f.disarm()
		_ = f.listener.Close()
		_ = os.RemoveAll(dir)
	})
	go func() {
		for {
			conn, err := f.listener.Accept()
			if err != nil {
				return
			}
			go f.visit(conn)
		}
	}()
	return f
}

func (f *failpoints) visit(conn net.Conn) {
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		_ = conn.Close()
		return
	}
	point := strings.TrimSpace(line)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.visits[point]++
	if f.armed == nil || f.armed.point != point {
		_ = conn.Close()
		return
	}
	if f.left > 0 {
		f.left--
		_ = conn.Close()
		return
	}
	f.armed = nil
	f.held[conn] = true
	f.reached <- conn
}

// arm makes the fault's point wait when it is reached.
func (f *failpoints) arm(armed fault) <-chan net.Conn {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed, f.left, f.reached = &armed, armed.visit, make(chan net.Conn, 1)
	return f.reached
}

// disarm lets all points go on.
func (f *failpoints) disarm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = nil
	for conn := range f.held {
		_ = conn.Close()
	}
	clear(f.held)
}

// strike carries out the round's fault. If the point is not reached until the channel late is
// closed, the fault strikes wherever knarr is. It reports whether the point was reached.
func (n *nodeChaos) strike(f fault, reached <-chan net.Conn, late <-chan struct{}) bool {
	at := true
	select {
	case <-reached:
	case <-late:
		select {
		case <-reached:
		default:
			at = false
		}
	}
	switch {
	case f.victim == knarrVictim && f.stop == 0:
		n.stop(syscall.SIGKILL)
		n.points.disarm()
		return at
	case f.victim == knarrVictim:
		n.pause([]int{n.cmd.Process.Pid}, f.stop)
		n.points.disarm()
		return at
	case f.victim == pluginVictim: // it waits for knarr's answer while the point waits
		n.hit(n.programs("knarr-cni"), f.stop)
		n.points.disarm()
		return at
	}
	n.points.disarm()
	time.Sleep(f.delay) // the moment within the runtime's work is the round's choice
	pids := n.programs(map[victim]string{containerdVictim: "containerd", shimVictim: "containerd-shim-runc-v2"}[f.victim])
	if f.victim == shimVictim && len(pids) > 0 {
		pick := f.pick % len(pids)
		pids = pids[pick : pick+1]
		n.shimsHit = 2 // the node may notice it in the next round
	}
	n.hit(pids, f.stop)
	return at
}

func (n *nodeChaos) hit(pids []int, stop time.Duration) {
	if stop > 0 {
		n.pause(pids, stop)
		return
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

func (n *nodeChaos) pause(pids []int, stop time.Duration) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
	}
	time.Sleep(stop) // the fault itself
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}
}

// programs returns the machine's processes of a program.
func (n *nodeChaos) programs(name string) []int {
	var pids []int
	for _, pid := range n.processes() {
		program, _, _ := strings.Cut(commandLine(pid), " ")
		if filepath.Base(program) == name {
			pids = append(pids, pid)
		}
	}
	return pids
}
