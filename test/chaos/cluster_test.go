package chaos

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// cluster is a cluster of joined `knarr server` processes on a LAN of its own, with a host for the
// clients.
type cluster struct {
	t       testing.TB
	lan     *lan
	clients *host
	members []*member
	admin   *rest.Config // of no server
	next    atomic.Int64 // the client that config made last

	wiping sync.Mutex // is held while a member has lost its data

	mu    sync.Mutex      // guards the fields below
	diary *diary          // of the current history
	told  func(time.Time) // set by onEnd
}

// member is one server of a cluster. It keeps its name, address and folders, also when it is
// removed and joins again.
type member struct {
	c    *cluster
	host *host
	memberOptions
	runDir string
	lives  int // how often it was started
	log    processOutput
	struck sync.Mutex // is held by a fault

	mu      sync.Mutex // guards the fields below
	process *process   // nil if none shall run
	joining []string   // flags of a join until the member is ready
	// excused explains why the process may end by itself; empty if it may not.
	excused string
}

// memberOptions differ between the members of a cluster.
type memberOptions struct {
	// program is another build than bin/knarr, such as one with failpoints.
	program string
	// env is added to the test's environment.
	env []string
	// dataDir is the data folder, such as one on a file system of a test. It must not exist.
	dataDir string
	// flags are added to those of all members.
	flags []string
}

// eventually limits waits for something that must happen.
const eventually = 5 * time.Minute

// startCluster starts a cluster of n servers. change may change a member's options.
func startCluster(t testing.TB, n int, change func(i int, o *memberOptions)) *cluster {
	t.Helper()
	if _, err := os.Stat(binary()); err != nil {
		t.Skip("needs make build: ", err)
	}
	dir, err := os.MkdirTemp("", "knarr-chaos-") // the names of t.TempDir are too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("s%d", i+1))
	}
	c := &cluster{t: t, lan: newLAN(t, append(names, "clients")...)}
	c.clients = c.lan.hosts[n]
	for i, h := range c.lan.hosts[:n] {
		usual := filepath.Join(dir, h.name, "disk", "data")
		m := &member{c: c, host: h, runDir: filepath.Join(dir, h.name, "run"), memberOptions: memberOptions{program: binary(), dataDir: usual}}
		if change != nil {
			change(i, &m.memberOptions)
		}
		if i == n-1 && m.dataDir == usual {
			if err := m.mountDisk(); err != nil {
				t.Fatal(err)
			}
		}
		c.members = append(c.members, m)
	}
	t.Cleanup(c.end)
	for i, m := range c.members {
		if i == 0 {
			m.launch()
		} else {
			c.join(m, c.members[0])
		}
		if err := m.waitReady(eventually); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// end stops all members and shows their output if the test has failed.
func (c *cluster) end() {
	for _, m := range c.members {
		m.thaw()
		m.kill(syscall.SIGKILL)
		if c.t.Failed() {
			c.t.Logf("the end of the output of %s:\n%s", m.host.name, lastLines(m.log.String(), 60))
		}
	}
}

// lastLines returns the last lines without the store's warnings, which faults cause all the time.
func lastLines(text string, n int) string {
	var lines []string
	for line := range strings.Lines(text) {
		if !strings.Contains(line, "level=WARN") || !strings.Contains(line, "component=etcd") {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// url returns the address of the member's API server.
func (m *member) url() string { return "https://" + m.host.address + ":6443" }

// join starts a member with an empty data folder, which joins by another one.
func (c *cluster) join(m, by *member) {
	c.t.Helper()
	if err := c.tryJoin(c.t.Context(), m, by); err != nil {
		c.t.Fatal(err)
	}
}

// tryJoin is join for a cluster with faults. The new member may not be ready yet.
func (c *cluster) tryJoin(ctx context.Context, m, by *member) error {
	out, err := by.command(ctx, "token", "create", "--server", "--data-dir", by.dataDir)
	if err != nil {
		return err
	}
	file := filepath.Join(filepath.Dir(m.runDir), "token")
	if err := os.MkdirAll(m.runDir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(out), 0o600); err != nil {
		return err
	}
	var all []string
	for _, other := range c.members {
		if other != m && len(all) < 2 && (other == by || other.lives > 0) {
			all = append(all, other.url())
		}
	}
	flags := []string{"--join", strings.Join(all, ","), "--token-file", file}
	m.mu.Lock()
	m.joining = flags
	m.mu.Unlock()
	m.launch(flags...)
	return nil
}

// command runs a command of knarr on the member's host and returns its standard output.
func (m *member) command(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, m.program, args...)
	var out, complaints strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &complaints
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := m.host.do(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return "", fmt.Errorf("knarr %s on %s: %w: %s", strings.Join(args, " "), m.host.name, err, complaints.String())
	}
	return out.String(), nil
}

// launch starts the member's process without waiting for it.
func (m *member) launch(flags ...string) {
	m.c.t.Helper()
	args := []string{"server", "--data-dir", m.dataDir, "--run-dir", m.runDir, "--node-name", m.host.name,
		"--listen", m.host.address + ":6443", "--peer-listen", m.host.address + ":2380", "--advertise-address", m.host.address,
		"--compaction-interval", compactMembersEvery.String(), "--shutdown-idle-duration", "0s",
		"--http-transport", transports[m.lives%len(transports)]}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lives++
	cmd := exec.Command(m.program, slices.Concat(args, m.flags, flags)...)
	cmd.Env = append(os.Environ(), m.env...)
	cmd.Stdout, cmd.Stderr = &m.log, &m.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.host.do(cmd.Start); err != nil {
		m.c.t.Errorf("%s: %v", m.host.name, err)
		return
	}
	p := &process{cmd: cmd, gone: make(chan struct{})}
	m.process = p
	go m.supervise(p)
}

// supervise starts a process again that ends by itself, as a service manager does. It must have an
// excuse.
func (m *member) supervise(p *process) {
	_ = p.cmd.Wait()
	close(p.gone)
	m.mu.Lock()
	again := m.process == p
	excuse := m.excused
	if excuse == diskWasFull {
		m.excused = ""
	}
	m.mu.Unlock()
	if !again {
		return
	}
	m.c.ended(time.Now().Add(-10 * time.Second)) // it may have begun to end at any time
	m.c.note("%s has ended by itself: %v", m.host.name, p.cmd.ProcessState)
	if excuse == "" {
		m.c.t.Errorf("%s has ended by itself: %v:\n%s", m.host.name, p.cmd.ProcessState, lastLines(m.log.String(), 15))
	}
	time.Sleep(calm) // as RestartSec
	m.mu.Lock()
	again, flags := m.process == p, m.joining
	m.mu.Unlock()
	if again {
		m.launch(flags...)
	}
}

// compactMembersEvery is far below any real setting, as compactEvery. Members agree on one of them
// to compact.
const compactMembersEvery = time.Second

// kill ends the process, if one runs, with a signal. No other one starts by itself.
func (m *member) kill(signal syscall.Signal) {
	m.mu.Lock()
	p := m.process
	m.process = nil
	m.mu.Unlock()
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(signal)
	select {
	case <-p.gone:
	case <-time.After(eventually):
		m.c.t.Errorf("%s does not end after %v", m.host.name, signal)
		_ = p.cmd.Process.Kill()
		<-p.gone
	}
}

// onEnd begins a history with this diary. f is called after each end of a member with the time
// before.
func (c *cluster) onEnd(d *diary, f func(told time.Time)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.diary, c.told = d, f
}

// note writes into the diary.
func (c *cluster) note(format string, args ...any) {
	c.mu.Lock()
	d := c.diary
	c.mu.Unlock()
	if d != nil {
		d.note(format, args...)
	}
}

// ended tells the histories that a member has ended; told is the time before.
func (c *cluster) ended(told time.Time) {
	c.mu.Lock()
	f := c.told
	c.mu.Unlock()
	if f != nil {
		f(told)
	}
}

// endMember kills a member and tells the histories.
func (c *cluster) endMember(m *member, signal syscall.Signal) {
	told := time.Now()
	m.kill(signal)
	c.ended(told)
}

// freeze stops the process without its knowledge, until thaw.
func (m *member) freeze() { m.signal(syscall.SIGSTOP) }
func (m *member) thaw()   { m.signal(syscall.SIGCONT) }

func (m *member) signal(signal syscall.Signal) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process != nil {
		_ = m.process.cmd.Process.Signal(signal)
	}
}

// excuse sets the reason why the process may end by itself.
func (m *member) excuse(reason string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.excused = reason
}

// waitReady waits until the server says that it is ready.
func (m *member) waitReady(patience time.Duration) error {
	c, err := kubernetes.NewForConfig(m.config("waiter", 2))
	if err != nil {
		return err
	}
	noted := time.Now().Add(10 * time.Second)
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := m.ready(c)
		if err != nil && time.Now().After(noted) {
			noted = time.Now().Add(10 * time.Second)
			m.c.note("%s is not ready: %v", m.host.name, err)
		}
		if err == nil {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.joining = nil
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is not ready after %v: %w", m.host.name, patience, err)
		}
	}
}

func (m *member) ready(c *kubernetes.Clientset) error {
	ctx, cancel := context.WithTimeout(m.c.t.Context(), time.Second)
	defer cancel()
	return c.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

// config returns the configuration of a client of the next server in turn. Clients of other servers
// have the same access.
func (c *cluster) config(name string, version int) (*rest.Config, error) {
	m := c.members[int(c.next.Add(1))%len(c.members)]
	return m.config(name, version), nil
}

// config returns the configuration of a client of this server, with its own connections. The client
// never repeats a request.
func (m *member) config(name string, version int) *rest.Config {
	return m.c.configFor(m.url(), name, version)
}

func (c *cluster) configFor(url, name string, version int) *rest.Config {
	if c.admin == nil {
		first := filepath.Join(c.members[0].dataDir, "kubeconfig")
		for deadline := time.Now().Add(eventually); ; time.Sleep(20 * time.Millisecond) {
			var err error
			if c.admin, err = clientcmd.BuildConfigFromFlags("", first); err == nil {
				break
			}
			if time.Now().After(deadline) {
				c.t.Fatal(err)
			}
		}
	}
	cfg := rest.CopyConfig(c.admin)
	cfg.Host = url
	cfg.UserAgent = "chaos/" + name
	cfg.QPS = -1
	cfg.Dial = c.clients.dial
	if version == 1 {
		cfg.TLSClientConfig.NextProtos = []string{"http/1.1"}
	}
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return onlyOnce{rt} })
	return cfg
}

// onlyOnce hides Retry-After from client-go, which would repeat the request. So every answer is
// seen.
type onlyOnce struct{ http.RoundTripper }

func (o onlyOnce) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := o.RoundTripper.RoundTrip(r)
	if err == nil {
		answer.Header.Del("Retry-After")
	}
	return answer, err
}
