package trace

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/knarr-project/knarr/internal/insight/ask"
	"github.com/knarr-project/knarr/internal/insight/causes"
)

const (
	// maxRounds bounds the questions to several servers until they know nothing new: the number of
	// times that a story goes from one server to another.
	maxRounds = 12
	// maxAsked is the number of revisions in a question.
	maxAsked = 500
)

// Ask asks the causal log of one server. A question is a path below /insight/v1/ with its query.
type Ask func(ctx context.Context, question string, query url.Values) (causes.Answer, error)

// Server is one server of a cluster.
type Server struct {
	Name string // for people, such as its URL
	Ask  Ask
}

// Servers asks the causal logs of all servers of a cluster side by side. Each server has the writes
// that it made.
type Servers struct {
	All []Server

	mu      sync.Mutex
	missing map[string]string
}

// Remote asks another server.
func Remote(s *ask.Server) Ask {
	return func(ctx context.Context, question string, query url.Values) (answer causes.Answer, err error) {
		return answer, s.Ask(ctx, question, query, &answer)
	}
}

// Missing returns the servers that did not answer, with the reasons. Their writes are not in the
// answers.
func (s *Servers) Missing() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.missing
}

// OfObject returns the writes of an object, newest first.
func (s *Servers) OfObject(ctx context.Context, o causes.Object) (causes.Answer, error) {
	answer, err := s.ask(ctx, "changes", url.Values{"group": {o.Group}, "resource": {o.Resource}, "namespace": {o.Namespace}, "name": {o.Name}})
	slices.Reverse(answer.Records)
	return answer, err
}

// OfRequest returns the writes of a request by its audit ID.
func (s *Servers) OfRequest(ctx context.Context, id string) (causes.Answer, error) {
	return s.ask(ctx, "changes", url.Values{"request": {id}})
}

// Forward returns the roots and all that came of them, in the order of their revisions.
func (s *Servers) Forward(ctx context.Context, roots []int64) (causes.Answer, error) {
	return s.closure(ctx, "trace", roots, func(r *causes.Record) []int64 { return []int64{r.Revision} })
}

// Backward returns the writes and all that led to them, in the order of their revisions.
func (s *Servers) Backward(ctx context.Context, revisions []int64) (causes.Answer, error) {
	return s.closure(ctx, "causes", revisions, func(r *causes.Record) []int64 { return r.Because.All() })
}

// Of returns the writes of the revisions, in their order.
func (s *Servers) Of(ctx context.Context, revisions []int64) (whole causes.Answer, err error) {
	for some := range slices.Chunk(revisions, maxAsked) {
		answer, err := s.ask(ctx, "records", revisionQuery(some))
		if err != nil {
			return whole, err
		}
		whole = merge(whole, answer)
	}
	return whole, nil
}

func revisionQuery(revisions []int64) url.Values {
	list := make([]string, len(revisions))
	for i, revision := range revisions {
		list[i] = strconv.FormatInt(revision, 10)
	}
	return url.Values{"revision": {strings.Join(list, ",")}}
}

// closure asks until no server knows more. next returns the revisions to ask for beyond a Record.
func (s *Servers) closure(ctx context.Context, question string, revisions []int64, next func(*causes.Record) []int64) (whole causes.Answer, err error) {
	asked := map[int64]bool{}
	for range maxRounds {
		var wanted []int64
		for _, revision := range revisions {
			if !asked[revision] && len(wanted) < maxAsked {
				asked[revision] = true
				wanted = append(wanted, revision)
			}
		}
		if len(wanted) == 0 {
			break
		}
		answer, err := s.ask(ctx, question, revisionQuery(wanted))
		if err != nil {
			return whole, err
		}
		whole = merge(whole, answer)
		if len(s.All) == 1 {
			break // it has followed all causes itself
		}
		revisions = revisions[:0:0]
		for i := range whole.Records {
			revisions = append(revisions, next(&whole.Records[i])...)
		}
	}
	return whole, nil
}

// ask asks all servers. It returns an error if none answers.
func (s *Servers) ask(ctx context.Context, question string, query url.Values) (whole causes.Answer, err error) {
	answers, errs := make([]causes.Answer, len(s.All)), make([]error, len(s.All))
	var group sync.WaitGroup
	for i, server := range s.All {
		group.Go(func() { answers[i], errs[i] = server.Ask(ctx, question, query) })
	}
	group.Wait()
	answered := false
	for i, err := range errs {
		if err == nil {
			answered = true
			whole = merge(whole, answers[i])
			continue
		}
		s.mu.Lock()
		if s.missing == nil {
			s.missing = map[string]string{}
		}
		s.missing[s.All[i].Name] = err.Error()
		s.mu.Unlock()
	}
	if !answered {
		return whole, errors.Join(errs...)
	}
	return whole, nil
}

// merge joins the answers of two servers, in the order of revisions.
func merge(a, b causes.Answer) causes.Answer {
	have := map[int64]bool{}
	for _, r := range a.Records {
		have[r.Revision] = true
	}
	for _, r := range b.Records {
		if !have[r.Revision] {
			have[r.Revision] = true
			a.Records = append(a.Records, r)
		}
	}
	slices.SortFunc(a.Records, func(x, y causes.Record) int { return cmp.Compare(x.Revision, y.Revision) })
	a.Hidden = max(a.Hidden, b.Hidden)
	a.Truncated = a.Truncated || b.Truncated
	return a
}
