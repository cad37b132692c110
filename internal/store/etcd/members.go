package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/client/pkg/v3/types"
	"go.etcd.io/etcd/server/v3/etcdserver"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"

	"github.com/knarr-project/knarr/internal/durable"
)

// PeerOptions lets an engine be one member of several. The members replicate the store among each
// other with raft, over TLS in both directions.
type PeerOptions struct {
	// Name is the name of this member's server.
	Name string
	// Listen is HOST:PORT of the listener for other members. It is opened once there are any.
	Listen string
	// Advertise is HOST:PORT at which other members reach this one.
	Advertise string
	// CertFile and KeyFile hold a certificate for servers and clients with Advertise's host.
	// CAFile holds the CA of all members' certificates.
	CertFile, KeyFile, CAFile string
	// Await, if set, returns when these files exist. A new store is made meanwhile.
	Await func(context.Context) error
	// Join lists all members including this one, if the engine joins them with an empty data
	// folder. It is ignored if the folder has a store.
	Join []Member
}

func (p *PeerOptions) url() string { return "https://" + p.Advertise }

// tls has the settings of connections between members. A member is known by a certificate of their
// CA. Its address is no sign: a server with several addresses connects from any of them, and etcd
// would look up the names in its certificate.
func (p *PeerOptions) tls() transport.TLSInfo {
	return transport.TLSInfo{
		CertFile: p.CertFile, KeyFile: p.KeyFile, ClientCertFile: p.CertFile, ClientKeyFile: p.KeyFile,
		TrustedCAFile: p.CAFile, ClientCertAuth: true, SkipClientSANVerify: true,
	}
}

// Member is one of the servers that hold the store.
type Member struct {
	ID uint64
	// Name is empty until the member has started for the first time.
	Name string
	// PeerURL is where other members reach it; memberURL if it has always been the only one.
	PeerURL string
	// Learner means that the member receives all writes, but has no vote yet.
	Learner bool
	// Leader means that the member orders all writes.
	Leader bool
	// Self is the member in this process.
	Self bool
}

var (
	// ErrLearnerNotReady means that the learner has not received enough of the store yet.
	ErrLearnerNotReady = errors.New("the member has not caught up yet")
	// ErrTooManyLearners means that another member is joining.
	ErrTooManyLearners = errors.New("another member is joining")
	// ErrNoMember means that no member has the ID.
	ErrNoMember = errors.New("no such member")
	// ErrNotLearner means that the member has a vote already.
	ErrNotLearner = errors.New("the member has a vote already")
	// ErrQuorum means that the change would leave too few connected members to accept writes.
	ErrQuorum = errors.New("too few members are connected to stay writable")
	// ErrRemoved means that this member is not one of the cluster any more.
	ErrRemoved = errors.New("this member was removed from the cluster")
)

// clusteredFile marks the data folder of a store that has or had several members.
const clusteredFile = "clustered"

func isClustered(dataDir string) bool {
	_, err := os.Stat(filepath.Join(dataDir, clusteredFile))
	return err == nil
}

func markClustered(dataDir string) error {
	if isClustered(dataDir) {
		return nil
	}
	return durable.WriteFile(filepath.Join(dataDir, clusteredFile), nil)
}

// Alone reports whether this member is the only one.
func (e *Engine) Alone() bool { return e.alone.Load() }

// onlyMember reports whether etcd knows no member but this one.
func (e *Engine) onlyMember() bool {
	all := e.server.Cluster().Members()
	return len(all) == 1 && all[0].ID == e.server.MemberID()
}

// Members returns all members, sorted by name. Members without a name come first.
func (e *Engine) Members(ctx context.Context) ([]Member, error) {
	done, err := e.read()
	if err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	defer done()
	if err := e.current(ctx, 0); err != nil {
		return nil, fmt.Errorf("list members: %w", err)
	}
	return e.members(), nil
}

func (e *Engine) members() []Member {
	var out []Member
	for _, m := range e.server.Cluster().Members() {
		out = append(out, e.member(m))
	}
	slices.SortFunc(out, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
	return out
}

func (e *Engine) member(m *membership.Member) Member {
	out := Member{ID: uint64(m.ID), Name: m.Name, Learner: m.IsLearner, Leader: m.ID == e.server.Leader(), Self: m.ID == e.server.MemberID()}
	if len(m.PeerURLs) > 0 {
		out.PeerURL = m.PeerURLs[0]
	}
	return out
}

// AddLearner adds a member that receives all writes without a vote. The new member has to start
// with PeerOptions.Join set to the returned list. It returns ErrTooManyLearners while another one
// joins.
//
// The first learner of an only member ends the time in which reads need no read index. It ends
// before the change is proposed, so no other member can accept a write unnoticed.
func (e *Engine) AddLearner(ctx context.Context, name, peerURL string) (Member, []Member, error) {
	added, all, err := e.addLearner(ctx, peerURL)
	if err != nil {
		return Member{}, nil, fmt.Errorf("add member %s at %s: %w", name, peerURL, err)
	}
	return added, all, nil
}

func (e *Engine) addLearner(ctx context.Context, peerURL string) (Member, []Member, error) {
	if e.peers == nil {
		return Member{}, nil, errors.New("this store is not set up for several members")
	}
	urls, err := types.NewURLs([]string{peerURL})
	if err != nil {
		return Member{}, nil, err
	}
	done, err := e.read()
	if err != nil {
		return Member{}, nil, err
	}
	defer done()
	e.changing.Lock()
	defer e.changing.Unlock()
	if err := e.listen(); err != nil {
		return Member{}, nil, err
	}
	if err := markClustered(e.dir); err != nil {
		return Member{}, nil, err
	}
	if err := e.awaitVersion(ctx); err != nil {
		return Member{}, nil, err
	}
	e.alone.Store(false)
	defer e.checkAlone(ctx)
	if err := e.publishURL(ctx); err != nil {
		return Member{}, nil, err
	}
	// The ID is a hash of the address and of a time in whole seconds. With the real time, a server
	// that is removed and added again within a second would have the ID of the removed member.
	salt := time.Unix(rand.Int64N(1<<40), 0)
	m := membership.NewMemberAsLearner("", urls, e.server.Cluster().ID().String(), &salt)
	if _, err := e.server.AddMember(ctx, *m); err != nil {
		return Member{}, nil, memberError(ctx, err)
	}
	return e.member(m), e.members(), nil
}

// versionEvery is the interval at which awaitVersion looks: etcd does not tell.
const versionEvery = 10 * time.Millisecond

// awaitVersion waits until the members agree on a version of etcd, shortly after the first start. A
// new member that finds none refuses to start.
func (e *Engine) awaitVersion(ctx context.Context) error {
	tick := time.NewTicker(versionEvery)
	defer tick.Stop()
	for e.server.ClusterVersion() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("the members agree on no version yet: %w", ctx.Err())
		}
	}
	return nil
}

// publishURL tells other members the address of this one, if it has changed.
func (e *Engine) publishURL(ctx context.Context) error {
	own := e.server.Cluster().Member(e.server.MemberID())
	if own == nil {
		return ErrRemoved
	}
	if slices.Equal(own.PeerURLs, []string{e.peers.url()}) {
		return nil
	}
	changed := *own
	changed.PeerURLs = []string{e.peers.url()}
	if _, err := e.server.UpdateMember(ctx, changed); err != nil {
		return memberError(ctx, err)
	}
	return nil
}

// Promote gives a learner a vote. It returns ErrLearnerNotReady until the learner has caught up.
func (e *Engine) Promote(ctx context.Context, id uint64) error {
	return e.change(ctx, "promote", id, func() error {
		_, err := e.server.PromoteMember(ctx, id)
		return err
	})
}

// Remove removes a member for good; it cannot come back with its data. It returns ErrQuorum if the
// rest could not accept writes.
func (e *Engine) Remove(ctx context.Context, id uint64) error {
	return e.change(ctx, "remove", id, func() error {
		if err := e.writableWithout(ctx, id); err != nil {
			return err
		}
		_, err := e.server.RemoveMember(ctx, id)
		return err
	})
}

// writableWithout returns ErrQuorum if less than a majority of the other voters answers. etcd has
// such a check too, but it counts a member only after five seconds of connection.
func (e *Engine) writableWithout(ctx context.Context, id uint64) error {
	var voters []Member
	for _, m := range e.members() {
		if m.ID != id && !m.Learner {
			voters = append(voters, m)
		}
	}
	answers := make([]error, len(voters))
	var asked sync.WaitGroup
	for i, m := range voters {
		asked.Go(func() { answers[i] = e.Reachable(ctx, m) })
	}
	asked.Wait()
	reached := 0
	for _, err := range answers {
		if err == nil {
			reached++
		}
	}
	if reached <= len(voters)/2 {
		return fmt.Errorf("%w: %d of the other %d voters answer (%w)", ErrQuorum, reached, len(voters), errors.Join(answers...))
	}
	return nil
}

func (e *Engine) change(ctx context.Context, what string, id uint64, do func() error) error {
	done, err := e.read()
	if err != nil {
		return fmt.Errorf("%s member %x: %w", what, id, err)
	}
	defer done()
	e.changing.Lock()
	defer e.changing.Unlock()
	if err := do(); err != nil {
		return fmt.Errorf("%s member %x: %w", what, id, memberError(ctx, err))
	}
	e.checkAlone(ctx)
	return nil
}

// checkAlone records that this member is the only one, once it is also the leader and has applied
// all writes of earlier leaders. The caller holds changing, so no member can be added meanwhile.
func (e *Engine) checkAlone(ctx context.Context) {
	if e.alone.Load() || !e.onlyMember() {
		return
	}
	if err := barrier(ctx, e.server); err == nil && e.onlyMember() && e.server.Leader() == e.server.MemberID() {
		e.alone.Store(true)
	}
}

// reachTimeout is how long Reachable waits.
const reachTimeout = 3 * time.Second

// Reachable returns an error if the member does not answer this one.
func (e *Engine) Reachable(ctx context.Context, m Member) error {
	if m.Self {
		return nil
	}
	if e.peers == nil {
		return errors.New("this store is not set up for several members")
	}
	trip, err := rafthttp.NewRoundTripper(e.peers.tls(), reachTimeout)
	if err != nil {
		return err
	}
	defer closeIdle(trip)
	request, err := http.NewRequest(http.MethodGet, m.PeerURL+"/version", nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	answer, err := trip.RoundTrip(request.WithContext(ctx))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(answer.Body, 1<<10)); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", m.PeerURL, answer.Status)
	}
	return nil
}

// closeIdle closes the connections of a transport that was made for one request.
func closeIdle(trip http.RoundTripper) {
	if t, ok := trip.(*http.Transport); ok {
		t.CloseIdleConnections()
	}
}

// Removed reports whether this member was removed from the cluster. It may be called after Done. A
// member that stopped before it heard of its removal asks the others.
func (e *Engine) Removed() bool {
	self := e.server.MemberID()
	if e.server.IsIDRemoved(uint64(self)) {
		return true
	}
	if e.peers == nil {
		return false
	}
	var others []string
	for _, m := range e.server.Cluster().Members() {
		if m.ID != self {
			others = append(others, m.PeerURLs...)
		}
	}
	trip, err := rafthttp.NewRoundTripper(e.peers.tls(), reachTimeout)
	if err != nil || len(others) == 0 {
		return false
	}
	defer closeIdle(trip)
	now, err := etcdserver.GetClusterFromRemotePeers(e.server.Logger(), others, trip)
	return err == nil && now.ID() == e.server.Cluster().ID() && now.Member(self) == nil
}

func memberError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, etcderrors.ErrLearnerNotReady):
		return ErrLearnerNotReady
	case errors.Is(err, membership.ErrTooManyLearners):
		return ErrTooManyLearners
	case errors.Is(err, membership.ErrIDNotFound), errors.Is(err, membership.ErrIDRemoved):
		return ErrNoMember
	case errors.Is(err, membership.ErrMemberNotLearner):
		return ErrNotLearner
	case errors.Is(err, ErrQuorum):
		return err
	}
	return translate(ctx, err)
}
