// Package harness starts the server for upstream's integration tests, which otherwise start an API
// server in their own process. It starts an etcd, which some tests access directly, and `knarr
// apiserver` on it. Each has its own loopback port and folder.
//
// The replacements of upstream's own harnesses use this package; package crd has the one for custom
// resources. KNARR_BIN and ETCD_BIN name the programs. With KNARR_KEEP a server's folder, including
// its logs, is kept.
package harness

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Prefix is the prefix of every key in knarr's store.
const Prefix = "/registry"

// startBound is the time in which a server must become ready, on a busy machine.
const startBound = time.Minute

// Server is a running API server and its store.
type Server struct {
	Config *rest.Config // of a user in system:masters
	Etcd   string       // URL of the store
	CAFile string       // authority of the server's certificate
	Port   int

	dir     string
	store   *store
	process *process
}

// Settings configure a server.
type Settings struct {
	Flags  []string // of `knarr apiserver`
	Tokens string   // file with bearer tokens of the test
	Store  string   // URL of an earlier server's store, running or not; "" means a new one
}

// Start starts a server on its store, and returns when it is ready.
func Start(settings Settings) (server *Server, err error) {
	s := &Server{}
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	if s.dir, err = os.MkdirTemp("", "knarr-integration-"); err != nil {
		return nil, err
	}
	if s.store, err = openStore(settings.Store); err != nil {
		return nil, err
	}
	s.Etcd = s.store.url
	if err := s.start(settings); err != nil {
		return nil, err
	}
	return s, s.wait()
}

// start gives the client a token, as upstream's harnesses do: their tests remove it to act as
// another user.
func (s *Server) start(settings Settings) error {
	const token = "integration"
	lines := token + `,system:apiserver,integration,"system:masters"` + "\n"
	if settings.Tokens != "" {
		others, err := os.ReadFile(settings.Tokens)
		if err != nil {
			return err
		}
		lines += string(others)
	}
	tokens := filepath.Join(s.dir, "tokens")
	if err := os.WriteFile(tokens, []byte(lines), 0o600); err != nil {
		return err
	}
	address, err := freeAddress()
	if err != nil {
		return err
	}
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	if s.Port, err = strconv.Atoi(port); err != nil {
		return err
	}
	s.Config = &rest.Config{Host: "https://" + address, BearerToken: token, QPS: 1000, Burst: 10000}
	s.process, err = launch("knarr", s.dir, os.Getenv("KNARR_BIN"), append([]string{"apiserver", "--data-dir", filepath.Join(s.dir, "data"), "--run-dir", filepath.Join(s.dir, "run"),
		"--listen", address, "--advertise-address", "127.0.0.1", "--store", s.Etcd, "--token-auth-file", tokens}, settings.Flags...)...)
	return err
}

// wait returns when the server is ready, with its authority in the client's configuration.
func (s *Server) wait() error {
	ctx, cancel := context.WithTimeout(context.Background(), startBound)
	defer cancel()
	for {
		if s.ready(ctx) {
			return nil
		}
		for _, p := range []*process{s.store.process, s.process} {
			if p.ended() {
				return fmt.Errorf("%s ended: %s", p.name, p.lastOutput())
			}
		}
		select {
		case <-ctx.Done():
			return errors.New("knarr is not ready in time: " + s.process.lastOutput())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *Server) ready(ctx context.Context) bool {
	admin, err := clientcmd.BuildConfigFromFlags("", filepath.Join(s.dir, "data", "kubeconfig"))
	if err != nil {
		return false
	}
	s.Config.CAData, s.CAFile = admin.CAData, filepath.Join(s.dir, "ca.crt")
	if err := os.WriteFile(s.CAFile, admin.CAData, 0o644); err != nil {
		return false
	}
	client, err := rest.HTTPClientFor(s.Config)
	if err != nil {
		return false
	}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Config.Host+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// StopGracefully is Stop after the server has answered all requests.
func (s *Server) StopGracefully() {
	s.process.stop()
	s.Stop()
}

// Stop stops the server, then its store, and removes their files.
func (s *Server) Stop() {
	if s.process != nil {
		s.process.kill()
	}
	if s.store != nil {
		s.store.close()
	}
	if os.Getenv("KNARR_KEEP") == "" && s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

// the kernel assigns ports from 32768, node ports begin at 30000
const firstPort, ports = 20000, 10000

// lastPort is where the search for a free port continues. It begins at random, so that processes do
// not collide.
var lastPort = func() *atomic.Int64 {
	last := &atomic.Int64{}
	last.Store(rand.Int64N(ports))
	return last
}()

// freeAddress returns a loopback address with a free port that is given out once in this process.
// It is outside the range from which the kernel assigns ports: a connection of another server could
// take such a port before our server listens.
func freeAddress() (string, error) {
	var err error
	for range ports {
		var l net.Listener
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", firstPort+lastPort.Add(1)%ports)); err == nil {
			defer l.Close()
			return l.Addr().String(), nil
		}
	}
	return "", fmt.Errorf("no port of loopback is free: %w", err)
}
