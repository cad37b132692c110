package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// server is one of the three servers of the cluster.
type server struct {
	name, listen, data string
	args               []string
	samples            []sample

	mu      sync.Mutex // guards the fields below, which change at each start
	cmd     *exec.Cmd
	done    chan struct{}
	started time.Time
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// start starts the server with a host name of its own and waits until it is ready.
func (s *server) start(ctx context.Context, args ...string) error {
	log, err := os.OpenFile(s.data+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command("unshare", append([]string{"--uts", "sh", "-c", `hostname "$1"; shift; exec "$@"`, "sh", s.name}, append(append([]string{}, s.args...), args...)...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	s.mu.Lock()
	s.cmd, s.done, s.started = cmd, done, time.Now()
	s.mu.Unlock()
	go func() { _ = cmd.Wait(); close(done) }()
	for deadline := time.Now().Add(90 * time.Second); ; {
		if _, err := s.get(ctx, "/readyz"); err == nil {
			return nil
		} else if time.Now().After(deadline) {
			return fmt.Errorf("%s is not ready: %w", s.name, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-done:
			return fmt.Errorf("%s ended, see %s", s.name, log.Name())
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// end sends a signal and waits for the end.
func (s *server) end(signal syscall.Signal) {
	s.mu.Lock()
	cmd, done := s.cmd, s.done
	s.mu.Unlock()
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(signal)
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		_ = cmd.Process.Kill()
		<-done
	}
}

// process returns the process id, and how long ago it was started.
func (s *server) process() (pid int, age time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cmd.Process.Pid, time.Since(s.started)
}

func (s *server) config() (*rest.Config, error) {
	return clientcmd.BuildConfigFromFlags("", filepath.Join(s.data, "kubeconfig"))
}

// get reads a path of the server as its administrator.
func (s *server) get(ctx context.Context, path string) (string, error) {
	config, err := s.config()
	if err != nil {
		return "", err
	}
	config.Timeout = 10 * time.Second
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return "", err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.listen+path, nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(response.Body); err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s answers %s", path, response.Status)
	}
	return text.String(), nil
}

// measure takes a sample of the server.
func (s *server) measure(ctx context.Context, minutes float64) error {
	text, err := s.get(ctx, "/metrics")
	if err != nil {
		return err
	}
	pid, _ := s.process()
	proc := fmt.Sprintf("/proc/%d", pid)
	status, err := os.ReadFile(proc + "/status")
	if err != nil {
		return err
	}
	files, err := os.ReadDir(proc + "/fd")
	if err != nil {
		return err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	s.samples = append(s.samples, sample{minutes, []float64{
		field(string(status), "VmRSS:") / 1e3, float64(len(files)), field(text, "go_goroutines "),
		field(text, "etcd_mvcc_db_total_size_in_bytes ") / 1e6, field(text, "etcd_mvcc_db_total_size_in_use_in_bytes ") / 1e6,
		float64(bytes.Count(mounts, []byte("\n"))),
	}})
	return nil
}

// field returns the number after a name at the beginning of a line, or 0.
func field(text, name string) float64 {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name); ok {
			if words := strings.Fields(rest); len(words) > 0 {
				v, _ := strconv.ParseFloat(words[0], 64)
				return v
			}
		}
	}
	return 0
}
