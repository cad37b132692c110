package chaos

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/knarr-project/knarr/internal/network/nettest"
)

// server is a `knarr apiserver` process that is killed and started again with the same data folder
// and port.
type server struct {
	t      testing.TB
	dir    string
	listen string
	flags  []string // in addition to the common ones
	// program is another build than bin/knarr, such as one with seeded bugs; env is added to its
	// environment.
	program string
	env     []string
	// killed is called after each kill of the process; may be nil.
	killed func()

	lives int // how often it was started

	mu      sync.Mutex // guards the fields below
	process *process
	conns   []net.Conn // of the clients made by client
	blows   map[syscall.Signal]int
	log     processOutput // of all its runs
}

// process is one run of the server.
type process struct {
	cmd  *exec.Cmd
	gone chan struct{} // closed when it has ended
}

// processOutput is the output of a process. It can be read while the process runs.
type processOutput struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

func (o *processOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *processOutput) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// compactEvery is far below any real setting, so that pages, watches and exact reads meet
// compactions all the time.
const compactEvery = 300 * time.Millisecond

func startServer(t testing.TB, flags ...string) *server {
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
	s := &server{t: t, dir: dir, flags: flags}
	s.run()
	return s
}

// run starts the server for the first time, and stops it when the test ends.
func (s *server) run() {
	s.t.Helper()
	s.listen = nettest.FreeAddress(s.t)
	s.t.Cleanup(func() {
		s.end(syscall.SIGTERM)
		if s.t.Failed() {
			s.t.Logf("the server's output:\n%s", s.log.String())
		}
	})
	s.start()
}

func binary() string {
	path, err := filepath.Abs("../../bin/knarr")
	if err != nil {
		return err.Error()
	}
	return path
}

// transports serve in turn, each for one life of the server: every test holds for both of them.
var transports = []string{"fast", "plain"}

// start starts the server and waits until it serves.
func (s *server) start() {
	s.t.Helper()
	args := []string{"apiserver", "--data-dir", s.dir, "--run-dir", filepath.Join(s.dir, "run"), "--listen", s.listen,
		// Endpoints must not name loopback. No client connects to this address.
		"--advertise-address", "192.0.2.1", "--compaction-interval", compactEvery.String(),
		"--http-transport", transports[s.lives%len(transports)]}
	s.lives++
	cmd := exec.Command(cmp.Or(s.program, binary()), append(args, s.flags...)...)
	cmd.Env = append(os.Environ(), s.env...)
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	p := &process{cmd: cmd, gone: make(chan struct{})}
	go func() {
		defer close(p.gone)
		_ = cmd.Wait()
	}()
	s.mu.Lock()
	s.process = p
	s.mu.Unlock()
	deadline := time.Now().Add(60 * time.Second)
	for {
		c, err := s.client("waiter")
		if err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			err = c.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
			cancel()
		}
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the server is not ready after a minute: %v", err)
		}
		select {
		case <-p.gone:
			s.t.Fatalf("the server has ended before it was ready: %v", cmd.ProcessState)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// end stops the process with a signal and waits. The process must have run until then.
func (s *server) end(signal syscall.Signal) {
	s.mu.Lock()
	p := s.process
	s.process = nil
	s.mu.Unlock()
	if p == nil {
		return
	}
	select {
	case <-p.gone:
		s.t.Errorf("the server has ended unexpectedly: %v", p.cmd.ProcessState)
		return
	default:
	}
	s.mu.Lock()
	if s.blows == nil {
		s.blows = map[syscall.Signal]int{}
	}
	s.blows[signal]++
	s.mu.Unlock()
	s.closeConnections() // idle connections would delay a graceful end
	_ = p.cmd.Process.Signal(signal)
	<-p.gone
	if s.killed != nil && signal == syscall.SIGKILL {
		s.killed()
	}
}

// events describes the server's history.
func (s *server) events() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("killed %d times and told to end %d times", s.blows[syscall.SIGKILL], s.blows[syscall.SIGTERM])
}

// closeConnections closes the connections of the clients made by client, which have no request
// under way when the server ends.
func (s *server) closeConnections() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.conns = nil
}

// config returns the configuration of a client with its own connections, over HTTP/1.1 or 2. The
// client never retries.
func (s *server) config(name string, version int) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(s.dir, "kubeconfig"))
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	cfg.UserAgent = "chaos/" + name
	cfg.QPS = -1
	cfg.Timeout = 0
	// Each client has its own transport. Otherwise all clients would share one connection and fail
	// together.
	cfg.Dial = (&net.Dialer{Timeout: 2 * time.Second}).DialContext
	if version == 1 {
		cfg.TLSClientConfig.NextProtos = []string{"http/1.1"}
	}
	return rest.AddUserAgent(cfg, name), nil
}

// client returns a client for the preparation of a test. Its connections are closed before the
// server ends.
func (s *server) client(name string) (*kubernetes.Clientset, error) {
	cfg, err := s.config(name, 2)
	if err != nil {
		return nil, err
	}
	dial := cfg.Dial
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err == nil {
			s.mu.Lock()
			s.conns = append(s.conns, c)
			s.mu.Unlock()
		}
		return c, err
	}
	return kubernetes.NewForConfig(cfg)
}

// define creates the custom kind and waits until it is served.
func (s *server) define() error {
	c, err := s.client("definer")
	if err != nil {
		return err
	}
	return define(c, true)
}

// define creates the custom kind, unless another server has it, and waits until it is served.
func define(c *kubernetes.Clientset, isNew bool) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	rest := c.Discovery().RESTClient()
	if isNew {
		err := rest.Post().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").SetHeader("Content-Type", "application/json").
			Body([]byte(widgetDefinition)).Do(ctx).Error()
		if err != nil {
			return err
		}
	}
	for {
		err := rest.Get().AbsPath("/apis/chaos.example.com/v1/widgets").Do(ctx).Error()
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}
