// Package harness starts what upstream's integration tests are pointed at instead of an API server in their own process: an
// etcd, which some of them read and write behind the server's back, and `knarr apiserver` on it, each on a loopback port of its
// own and with a folder of its own.
//
// The files that take the place of upstream's own harnesses (package crd has the one for custom resources) are made of it.
// The programs are those that KNARR_BIN and ETCD_BIN name; with KNARR_KEEP a server's folder, its logs in it, stays.
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

// Prefix is what every key of knarr's store begins with.
const Prefix = "/registry"

// startBound is how long a server may take to be ready, on a machine that others use as well.
const startBound = time.Minute

// Server is an API server that runs, and its store.
type Server struct {
	Config *rest.Config // of a user in system:masters
	Etcd   string       // URL of the store
	CAFile string       // authority of the server's certificate
	Port   int

	dir     string
	store   *store
	process *process
}

// Settings are what a server may be started with.
type Settings struct {
	Flags  []string // of `knarr apiserver`
	Tokens string   // file of a test's own bearer tokens
	Store  string   // of a server before it, running or not; a new one otherwise
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

// start gives the client a token, as upstream's harnesses do: their tests take it away to be somebody else.
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
				return fmt.Errorf("%s ended: %s", p.name, p.lastWords())
			}
		}
		select {
		case <-ctx.Done():
			return errors.New("knarr is not ready in time: " + s.process.lastWords())
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

// Leave is Stop, once the server has answered what it was asked.
func (s *Server) Leave() {
	s.process.stop()
	s.Stop()
}

// Stop ends the server, then its store, and removes what they left.
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

const firstPort, ports = 20000, 10000 // those that the kernel gives away begin at 32768, node ports at 30000

// lastPort is where the next free port is looked for: begun anywhere, so that processes do not meet.
var lastPort = func() *atomic.Int64 {
	last := &atomic.Int64{}
	last.Store(rand.Int64N(ports))
	return last
}()

// freeAddress is one of loopback with a port that nobody has, and that nobody else in this process is given. It is none of those that the kernel
// gives to whoever takes any: another server's connection could have it before ours listens.
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
