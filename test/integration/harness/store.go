package harness

import (
	"os"
	"path/filepath"
	"sync"
)

// stores holds all stores ever started, by URL: a test may start a server on the store of a stopped
// one.
var (
	storesMu sync.Mutex
	stores   = map[string]*store{}
)

// store is an etcd that runs while a server uses it. Its folder stays until the end of the tests,
// when run.sh removes it.
type store struct {
	url, peer, dir string
	process        *process
	users          int
}

// IsStore reports whether the URL is that of a store started here.
func IsStore(url string) bool {
	storesMu.Lock()
	defer storesMu.Unlock()
	return stores[url] != nil
}

// openStore opens the store at the URL, or creates one.
func openStore(url string) (*store, error) {
	storesMu.Lock()
	defer storesMu.Unlock()
	s := stores[url]
	if s == nil {
		var err error
		if s, err = newStore(); err != nil {
			return nil, err
		}
		stores[s.url] = s
	}
	if s.users == 0 {
		var err error
		if s.process, err = launch("etcd", s.dir, os.Getenv("ETCD_BIN"), "--data-dir", filepath.Join(s.dir, "data"), "--unsafe-no-fsync", "--log-level", "warn",
			"--listen-client-urls", s.url, "--advertise-client-urls", s.url,
			"--listen-peer-urls", s.peer, "--initial-advertise-peer-urls", s.peer, "--initial-cluster", "default="+s.peer); err != nil {
			return nil, err
		}
	}
	s.users++
	return s, nil
}

func newStore() (*store, error) {
	client, err := freeAddress()
	if err != nil {
		return nil, err
	}
	peer, err := freeAddress()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "knarr-integration-etcd-")
	return &store{url: "http://" + client, peer: "http://" + peer, dir: dir}, err
}

func (s *store) close() {
	storesMu.Lock()
	defer storesMu.Unlock()
	if s.users--; s.users == 0 {
		s.process.kill()
	}
}
