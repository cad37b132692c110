package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/knarr-project/knarr/internal/failpoint"
	"github.com/knarr-project/knarr/internal/member"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

// handOverTimeout limits the wait for another leader at a planned stop.
const handOverTimeout = 5 * time.Second

// embedded reports whether this process contains the store.
func (s *Server) embedded() bool { return len(s.cfg.StoreEndpoints) == 0 }

// aloneOnStore reports whether no other server can use the store.
func (s *Server) aloneOnStore() bool { return s.members != nil && s.members.Alone() }

// peerNames are the names and addresses of this server's member of the embedded store.
func (s *Server) peerNames() []string {
	if !s.embedded() {
		return nil
	}
	names := []string{s.cfg.NodeName, "localhost", "127.0.0.1"}
	for _, name := range []string{s.cfg.AdvertiseAddress, hostOf(s.cfg.PeerAddress())} {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}

// hostOf returns the host of HOST:PORT, or "".
func hostOf(address string) string {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	return host
}

func (s *Server) peerURL() string { return "https://" + s.cfg.PeerAddress() }

// openEmbedded opens the embedded store. A server that joins first becomes a member of the others'
// store, and returns when its member has a vote.
//
// A new store is made only if this server has not joined a cluster, and has had no store before:
// otherwise a lost store would split the cluster in two, or show its nodes an empty cluster.
func (s *Server) openEmbedded(ctx context.Context) (*etcd.Engine, error) {
	dir := s.cfg.Path("etcd")
	joined, err := LoadJoined(s.cfg.DataDir)
	if err != nil {
		return nil, err
	}
	log, err := hasLog(dir)
	if err != nil {
		return nil, err
	}
	if log && joined != nil && !joined.Running && !joined.Done {
		// The first start was interrupted. The store has nothing that the others do not have.
		if err := os.RemoveAll(dir); err != nil {
			return nil, err
		}
		log = false
	}
	if joined == nil && !log {
		if err := refuseLostStore(s.cfg.DataDir); err != nil {
			return nil, err
		}
	}
	file := func(name string) string { return s.cfg.Path("pki", "etcd", name) }
	peers := &etcd.PeerOptions{
		Name: s.cfg.NodeName, Listen: s.cfg.PeerListen, Advertise: s.cfg.PeerAddress(),
		CertFile: file("peer.crt"), KeyFile: file("peer.key"), CAFile: file("ca.crt"), Await: s.awaitKeys,
	}
	if joined != nil && !log {
		if err := s.awaitKeys(ctx); err != nil {
			return nil, err
		}
		if peers.Join, err = s.becomeMember(ctx, joined); err != nil {
			return nil, err
		}
	}
	engine, err := etcd.Open(ctx, s.watched(etcd.Options{DataDir: dir, UnsafeNoSync: s.unsynced, Peers: peers, Log: s.log.With("component", "store")}))
	if err != nil {
		return nil, err
	}
	if joined != nil && !joined.Running {
		joined.Running = true
		if err := joined.Save(s.cfg.DataDir); err != nil {
			return nil, errors.Join(err, engine.Close())
		}
		failpoint.Here("member-running")
	}
	if joined != nil && !joined.Done {
		if err := s.becomeVoter(ctx, engine, joined); err != nil {
			return nil, errors.Join(err, engine.Close())
		}
	}
	return engine, nil
}

// hasLog reports whether a store's folder has a write-ahead log, without which it has no data.
func hasLog(dir string) (bool, error) {
	found, err := filepath.Glob(filepath.Join(dir, "member", "wal", "*.wal"))
	return len(found) > 0, err
}

// awaitKeys waits for StartKeys.
func (s *Server) awaitKeys(ctx context.Context) error {
	select {
	case <-s.keysDone:
	case <-ctx.Done():
		return ctx.Err()
	}
	if s.keys == nil {
		return errors.New("there are no keys")
	}
	return nil
}

// becomeMember has a server add this one as a learner, and returns all members. It tries all known
// servers until one answers.
func (s *Server) becomeMember(ctx context.Context, joined *Joined) ([]etcd.Member, error) {
	request := member.Request{Name: s.cfg.NodeName, PeerURL: s.peerURL()}
	if !joined.Opened {
		request.ID = joined.Member
	}
	c := s.serverClient()
	defer c.CloseIdleConnections()
	servers := slices.Compact(append([]string{joined.Server}, joined.Servers...))
	var list member.List
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		var errs []error
		for _, server := range servers {
			err := member.Ask(ctx, c, http.MethodPost, server+member.AddPath, request, &list)
			switch status := member.StatusOf(err); {
			case err == nil:
			case status >= 400 && status < 500 && status != http.StatusTooManyRequests:
				return nil, fmt.Errorf("join %s: %w", server, err)
			default:
				errs = append(errs, fmt.Errorf("%s: %w", server, err))
				continue
			}
			failpoint.Here("member-added")
			return s.addedMembers(joined, list)
		}
		s.log.Warn("waiting for a server that adds this one", "component", "store", "err", errors.Join(errs...))
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(pause):
		}
	}
}

// addedMembers records that this server's member is added, and that its store is about to start.
func (s *Server) addedMembers(joined *Joined, list member.List) ([]etcd.Member, error) {
	joined.Member, joined.Opened, joined.Running, joined.Done = list.Added, false, false, false
	if err := joined.Save(s.cfg.DataDir); err != nil {
		return nil, err
	}
	var members []etcd.Member
	own := false
	for _, m := range list.Members {
		id, err := member.ParseID(m.ID)
		if err != nil {
			return nil, fmt.Errorf("join: the answer has a member %q without an ID", m.Name)
		}
		own = own || m.ID == list.Added && m.PeerURL == s.peerURL()
		members = append(members, etcd.Member{ID: id, Name: m.Name, PeerURL: m.PeerURL, Learner: m.Learner})
	}
	if !own {
		return nil, errors.New("join: the answer does not have this server among the members")
	}
	failpoint.Here("member-recorded")
	joined.Opened = true
	return members, joined.Save(s.cfg.DataDir)
}

// becomeVoter gives the member a vote as soon as it has caught up.
func (s *Server) becomeVoter(ctx context.Context, engine *etcd.Engine, joined *Joined) error {
	log := s.log.With("component", "store")
	began, next := time.Now(), 10*time.Second
	for {
		members, err := engine.Members(ctx)
		if err == nil {
			i := slices.IndexFunc(members, func(m etcd.Member) bool { return m.Self })
			if i < 0 {
				return fmt.Errorf("%w: `knarr purge` here, and join again with a new token", etcd.ErrRemoved)
			}
			if !members[i].Learner {
				joined.Done = true
				return joined.Save(s.cfg.DataDir)
			}
			if err = engine.Promote(ctx, members[i].ID); err == nil {
				continue
			}
		}
		if waited := time.Since(began); waited > next {
			log.Warn("this server's store is catching up with the others", "since", waited.Round(time.Second), "err", err)
			next *= 2
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-engine.Done():
			return fmt.Errorf("the store has stopped: %w?", etcd.ErrRemoved)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// handOver gives the store's leadership to another server before a planned stop.
func (s *Server) handOver() {
	if s.members == nil || s.members.Alone() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), handOverTimeout)
	defer cancel()
	if err := s.members.HandOver(ctx); err != nil {
		s.log.Warn("another server becomes the store's leader only by an election", "component", "store", "err", err)
	}
}

// whyStopped explains why the embedded store has ended while the process runs.
func (s *Server) whyStopped() error {
	if err := s.engine.Failure(); err != nil {
		return fmt.Errorf("the store has failed: %w", err)
	}
	return fmt.Errorf("the store has stopped; if %w (`knarr member ls` on another server), remove its data here with `knarr purge`", etcd.ErrRemoved)
}
