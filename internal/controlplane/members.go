package controlplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/knarr-project/knarr/internal/member"
	"github.com/knarr-project/knarr/internal/store/etcd"
)

// membership is the embedded engine's list of members.
type membership interface {
	Members(ctx context.Context) ([]etcd.Member, error)
	// KnownMembers is Members without asking the others, with the newest known revision.
	KnownMembers() ([]etcd.Member, int64, error)
	Reachable(ctx context.Context, m etcd.Member) error
	AddLearner(ctx context.Context, name, peerURL string) (etcd.Member, []etcd.Member, error)
	Promote(ctx context.Context, id uint64) error
	Remove(ctx context.Context, id uint64) error
	Alone() bool
	HandOver(ctx context.Context) error
}

// statusError is an error with the status of its answer.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return e.text }

func conflict(format string, args ...any) error {
	return &statusError{http.StatusConflict, fmt.Sprintf(format, args...)}
}

// answerError sends an error with its status.
func answerError(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	var known *statusError
	switch {
	case errors.As(err, &known):
		status = known.status
	case errors.Is(err, etcd.ErrTooManyLearners):
		status = http.StatusTooManyRequests
	case errors.Is(err, etcd.ErrQuorum), errors.Is(err, etcd.ErrLearnerNotReady), errors.Is(err, etcd.ErrNotLearner):
		status = http.StatusConflict
	case errors.Is(err, etcd.ErrNoMember):
		status = http.StatusNotFound
	}
	http.Error(w, err.Error(), status)
}

// memberPaths are the handlers of members.
func (s *Server) memberPaths() map[string]http.Handler {
	posted := func(do func(context.Context, member.Request) (member.List, error)) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serveMember(w, r, do) })
	}
	return map[string]http.Handler{
		member.Path:        http.HandlerFunc(s.serveMembers),
		member.AddPath:     posted(s.addMember),
		member.PromotePath: posted(s.promoteMember),
		member.RemovePath:  posted(s.removeMember),
		member.ServerPath:  http.HandlerFunc(s.serveServer),
	}
}

var errOutsideStore = &statusError{http.StatusNotImplemented, "this cluster's store is an outside etcd: `etcdctl member` manages its members"}

func (s *Server) serveMembers(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		http.Error(w, "method not allowed: GET", http.StatusMethodNotAllowed)
		return
	}
	if s.members == nil {
		answerError(w, errOutsideStore)
		return
	}
	limited, cancel := context.WithTimeout(r.Context(), askTimeout)
	defer cancel()
	list, err := s.listMembers(limited)
	if err != nil && r.Context().Err() == nil {
		list, err = s.listKnownMembers(r.Context(), err)
	}
	if err != nil {
		answerError(w, err)
		return
	}
	answerJSON(w, list)
}

// serveMember reads a request and answers with the members after it.
func (s *Server) serveMember(w http.ResponseWriter, r *http.Request, do func(context.Context, member.Request) (member.List, error)) {
	if r.Method != http.MethodPost {
		http.Error(w, "method not allowed: POST", http.StatusMethodNotAllowed)
		return
	}
	data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, member.MaxRequest))
	if err != nil {
		http.Error(w, "the request is larger than 4 KiB", http.StatusRequestEntityTooLarge)
		return
	}
	request, err := member.ParseRequest(data)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if s.members == nil {
		answerError(w, errOutsideStore)
		return
	}
	// A change that has begun is finished, even if the client has gone.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 30*time.Second)
	defer cancel()
	list, err := do(ctx, request)
	if err != nil {
		s.log.Warn("a change of the members is refused", "component", "apiserver", "path", r.URL.Path, "member", request.Name, "err", err)
		answerError(w, err)
		return
	}
	answerJSON(w, list)
}

// shown returns a member without what only the member itself can tell.
func shown(m etcd.Member) member.Member {
	return member.Member{ID: member.FormatID(m.ID), Name: m.Name, PeerURL: m.PeerURL, Learner: m.Learner, Leader: m.Leader, Self: m.Self}
}

func shownAll(all []etcd.Member) member.List {
	list := member.List{Members: make([]member.Member, len(all))}
	for i, m := range all {
		list.Members[i] = shown(m)
	}
	return list
}

// find returns the member with a name or an ID in hexadecimal.
func find(all []etcd.Member, name string) (etcd.Member, bool) {
	i := slices.IndexFunc(all, func(m etcd.Member) bool { return m.Name == name || member.FormatID(m.ID) == name })
	if i < 0 {
		return etcd.Member{}, false
	}
	return all[i], true
}

// mustFind is find with an error that lists the members.
func mustFind(all []etcd.Member, name string) (etcd.Member, error) {
	m, ok := find(all, name)
	if ok {
		return m, nil
	}
	var known []string
	for _, m := range all {
		if m.Name == "" {
			m.Name = member.FormatID(m.ID)
		}
		known = append(known, m.Name)
	}
	return m, &statusError{http.StatusNotFound, fmt.Sprintf("there is no member %q; the members are %s", name, strings.Join(known, ", "))}
}

// addMember adds a learner for a server that joins. A member of the same name or address that does
// not answer has lost its data, because its server asks to be added: it is removed first.
func (s *Server) addMember(ctx context.Context, r member.Request) (member.List, error) {
	if r.PeerURL == "" {
		return member.List{}, &statusError{http.StatusBadRequest, "peerURL is missing: the address of the new server's store, such as https://10.0.0.5:2380"}
	}
	s.changing.Lock()
	defer s.changing.Unlock()
	all, err := s.members.Members(ctx)
	if err != nil {
		return member.List{}, err
	}
	for _, m := range all {
		if m.Name != r.Name && m.PeerURL != r.PeerURL {
			continue
		}
		if m.Learner && member.FormatID(m.ID) == r.ID && m.PeerURL == r.PeerURL {
			list := shownAll(all)
			list.Added = r.ID
			return list, nil
		}
		if err := s.refuseLiving(ctx, m, r.Name); err != nil {
			return member.List{}, err
		}
		s.log.Warn("removing the old member of a server that joins again", "component", "apiserver", "server", r.Name, "member", member.FormatID(m.ID))
		if err := s.members.Remove(ctx, m.ID); err != nil {
			return member.List{}, err
		}
	}
	if err := s.publishServer(ctx); err != nil {
		return member.List{}, err
	}
	added, all, err := s.members.AddLearner(ctx, r.Name, r.PeerURL)
	if err != nil {
		return member.List{}, err
	}
	s.log.Info("a server joins", "component", "apiserver", "server", r.Name, "address", r.PeerURL)
	list := shownAll(all)
	list.Added = member.FormatID(added.ID)
	return list, nil
}

// nameIsFree refuses the name of a member that answers.
func (s *Server) nameIsFree(ctx context.Context, name string) error {
	all, err := s.members.Members(ctx)
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.Name == name {
			return s.refuseLiving(ctx, m, name)
		}
	}
	return nil
}

// refuseLiving returns an error if the member answers. A process that was killed a moment ago may
// still seem to.
func (s *Server) refuseLiving(ctx context.Context, m etcd.Member, name string) error {
	alive := func() bool { return m.Self || s.members.Reachable(ctx, m) == nil }
	for range 3 {
		if !alive() {
			return nil
		}
		if m.Self {
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(s.second()):
		}
	}
	if m.Name != name {
		return conflict("the address %s is that of server %q, which runs: give this server another --peer-listen or --advertise-address", m.PeerURL, m.Name)
	}
	return conflict("server %q is a member and runs at %s: give this one another name with --node-name, or stop the other one", name, m.PeerURL)
}

// second is a pause; tests shorten it.
func (s *Server) second() time.Duration {
	if s.pause > 0 {
		return s.pause
	}
	return time.Second
}

func (s *Server) promoteMember(ctx context.Context, r member.Request) (member.List, error) {
	all, err := s.members.Members(ctx)
	if err != nil {
		return member.List{}, err
	}
	m, err := mustFind(all, r.Name)
	switch {
	case err != nil:
		return member.List{}, err
	case !m.Learner:
		return member.List{}, conflict("%s is a voter already", r.Name)
	}
	switch err := s.members.Promote(ctx, m.ID); {
	case errors.Is(err, etcd.ErrLearnerNotReady):
		return member.List{}, conflict("%s has not caught up yet: its server promotes itself once it has; is it running?", r.Name)
	case err != nil:
		return member.List{}, err
	}
	return s.listMembers(ctx)
}

func (s *Server) removeMember(ctx context.Context, r member.Request) (member.List, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	all, err := s.members.Members(ctx)
	if err != nil {
		return member.List{}, err
	}
	m, err := mustFind(all, r.Name)
	if err != nil {
		return member.List{}, err
	}
	voters := 0
	for _, m := range all {
		if !m.Learner {
			voters++
		}
	}
	if !m.Learner && voters == 1 {
		return member.List{}, conflict("%s is the last voter: without it the cluster has no data; `knarr purge` there removes the cluster", r.Name)
	}
	if m.Leader && m.Self {
		// Writes do not have to wait for an election.
		if err := s.members.HandOver(ctx); err != nil {
			return member.List{}, err
		}
	}
	switch err := s.members.Remove(ctx, m.ID); {
	case errors.Is(err, etcd.ErrQuorum):
		return member.List{}, conflict("%s cannot be removed: of the other voters a majority must answer, or the cluster accepts no writes: %v", r.Name, err)
	case err != nil:
		return member.List{}, err
	}
	s.log.Info("a member is removed", "component", "apiserver", "server", m.Name, "member", member.FormatID(m.ID))
	s.forgetServer(ctx, m.Name)
	left := member.List{Members: slices.DeleteFunc(shownAll(all).Members, func(one member.Member) bool { return one.ID == member.FormatID(m.ID) })}
	if m.Self {
		return left, nil
	}
	list, err := s.listMembers(ctx)
	if err != nil { // the removed member led, and the others still elect a leader
		return left, nil
	}
	return list, nil
}
