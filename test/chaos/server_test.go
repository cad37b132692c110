package chaos

import (
	"bytes"
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
)

// server is `knarr apiserver`, a process of its own that is killed and started again on the same data folder and port.
type server struct {
	t      testing.TB
	dir    string
	listen string

	mu  sync.Mutex // guards cmd
	cmd *exec.Cmd
	log bytes.Buffer // of all its lives; written by the process, read after its end
}

// compactEvery is far below what anybody would set: pages, watches and exact reads meet compaction all the time.
const compactEvery = 300 * time.Millisecond

func startServer(t testing.TB) *server {
	t.Helper()
	if _, err := os.Stat(binary()); err != nil {
		t.Skip("needs make build: ", err)
	}
	dir, err := os.MkdirTemp("", "knarr-chaos-")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, dir: dir, listen: freeAddress(t)}
	t.Cleanup(func() {
		s.end(syscall.SIGTERM)
		if t.Failed() {
			t.Logf("the server's output:\n%s", s.log.String())
		}
		_ = os.RemoveAll(dir)
	})
	s.start()
	return s
}

func binary() string {
	path, err := filepath.Abs("../../bin/knarr")
	if err != nil {
		return err.Error()
	}
	return path
}

// freeAddress finds a port of loopback that nobody has right now.
func freeAddress(t testing.TB) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start runs the server and waits until it serves.
func (s *server) start() {
	s.t.Helper()
	cmd := exec.Command(binary(), "apiserver", "--data-dir", s.dir, "--run-dir", filepath.Join(s.dir, "run"), "--listen", s.listen,
		// Endpoints may not name loopback; nobody connects there.
		"--advertise-address", "192.0.2.1", "--compaction-interval", compactEvery.String())
	cmd.Stdout, cmd.Stderr = &s.log, &s.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.mu.Lock()
	s.cmd = cmd
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
			s.t.Fatalf("the server is not ready after a minute: %v\n%s", err, s.log.String())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// end stops the process with a signal and waits for it.
func (s *server) end(signal syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(signal)
	_ = s.cmd.Wait()
	s.cmd = nil
}

// config is for a client with connections of its own, over HTTP/1.1 or 2. It never tries anything again by itself.
func (s *server) config(name string, version int) (*rest.Config, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", filepath.Join(s.dir, "kubeconfig"))
	if err != nil {
		return nil, fmt.Errorf("kubeconfig: %w", err)
	}
	cfg.UserAgent = "chaos/" + name
	cfg.QPS = -1
	cfg.Timeout = 0
	// A transport of its own, or all clients share one connection and end together.
	cfg.Dial = (&net.Dialer{Timeout: 2 * time.Second}).DialContext
	if version == 1 {
		cfg.TLSClientConfig.NextProtos = []string{"http/1.1"}
	}
	return rest.AddUserAgent(cfg, name), nil
}

func (s *server) client(name string) (*kubernetes.Clientset, error) {
	cfg, err := s.config(name, 2)
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(cfg)
}

// define makes the custom kind, and returns when it is served.
func (s *server) define() error {
	c, err := s.client("definer")
	if err != nil {
		return err
	}
	rest := c.Discovery().RESTClient()
	err = rest.Post().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").SetHeader("Content-Type", "application/json").
		Body([]byte(widgetDefinition)).Do(context.Background()).Error()
	if err != nil {
		return err
	}
	deadline := time.Now().Add(60 * time.Second)
	for {
		err := rest.Get().AbsPath("/apis/chaos.example.com/v1/widgets").Do(context.Background()).Error()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}
