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
	"net"
	"net/http"
	"os"
	"path/filepath"
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

	dir       string
	processes []*process
}

// Start starts an empty store and a server on it, and returns when that is ready. Flags are those of `knarr apiserver`.
func Start(flags ...string) (server *Server, err error) {
	s := &Server{}
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	if s.dir, err = os.MkdirTemp("", "knarr-integration-"); err != nil {
		return nil, err
	}
	if err := s.startStore(); err != nil {
		return nil, err
	}
	if err := s.startServer(flags); err != nil {
		return nil, err
	}
	return s, s.wait()
}

func (s *Server) startStore() error {
	client, err := freeAddress()
	if err != nil {
		return err
	}
	peer, err := freeAddress()
	if err != nil {
		return err
	}
	s.Etcd = "http://" + client
	return s.launch("etcd", os.Getenv("ETCD_BIN"), "--data-dir", filepath.Join(s.dir, "etcd"), "--unsafe-no-fsync", "--log-level", "warn",
		"--listen-client-urls", s.Etcd, "--advertise-client-urls", s.Etcd,
		"--listen-peer-urls", "http://"+peer, "--initial-advertise-peer-urls", "http://"+peer, "--initial-cluster", "default=http://"+peer)
}

// startServer gives the client a token, as upstream's harnesses do: their tests take it away to be somebody else.
func (s *Server) startServer(flags []string) error {
	const token = "integration"
	tokens := filepath.Join(s.dir, "tokens")
	if err := os.WriteFile(tokens, []byte(token+`,system:apiserver,integration,"system:masters"`+"\n"), 0o600); err != nil {
		return err
	}
	address, err := freeAddress()
	if err != nil {
		return err
	}
	s.Config = &rest.Config{Host: "https://" + address, BearerToken: token, QPS: 1000, Burst: 10000}
	return s.launch("knarr", os.Getenv("KNARR_BIN"), append([]string{"apiserver", "--data-dir", filepath.Join(s.dir, "data"), "--run-dir", filepath.Join(s.dir, "run"),
		"--listen", address, "--advertise-address", "127.0.0.1", "--store", s.Etcd, "--token-auth-file", tokens}, flags...)...)
}

// wait returns when the server is ready, with its authority in the client's configuration.
func (s *Server) wait() error {
	ctx, cancel := context.WithTimeout(context.Background(), startBound)
	defer cancel()
	for {
		if s.ready(ctx) {
			return nil
		}
		for _, p := range s.processes {
			if p.ended() {
				return fmt.Errorf("%s ended: %s", p.name, p.lastWords())
			}
		}
		select {
		case <-ctx.Done():
			return errors.New("knarr is not ready in time: " + s.processes[len(s.processes)-1].lastWords())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (s *Server) ready(ctx context.Context) bool {
	admin, err := clientcmd.BuildConfigFromFlags("", filepath.Join(s.dir, "data", "kubeconfig"))
	if err != nil {
		return false
	}
	s.Config.CAData = admin.CAData
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

// Stop ends the server, then its store, and removes what they left.
func (s *Server) Stop() {
	for i := len(s.processes) - 1; i >= 0; i-- {
		s.processes[i].kill()
	}
	if os.Getenv("KNARR_KEEP") == "" && s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
