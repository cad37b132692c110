package trace

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/knarr-project/knarr/internal/insight/causes"
)

const (
	// maxAnswer bounds an answer of a server, in bytes.
	maxAnswer = 16 << 20
	// maxRounds bounds the questions to several servers until they know nothing new: the number of
	// times that a story goes from one server to another.
	maxRounds = 12
	// maxAsked is the number of revisions in a question.
	maxAsked = 500
)

// Servers asks the causal logs of all servers of a cluster. Each server has the writes that it
// made.
type Servers struct {
	HTTP *http.Client
	URLs []string // such as https://10.0.0.1:6443

	mu      sync.Mutex
	missing map[string]error
}

// Missing returns the servers that did not answer, with the reasons. Their writes are not in the
// answers.
func (s *Servers) Missing() map[string]error {
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

// closure asks until no server knows more. next returns the revisions to ask for beyond a Record.
func (s *Servers) closure(ctx context.Context, question string, revisions []int64, next func(*causes.Record) []int64) (whole causes.Answer, err error) {
	asked := map[int64]bool{}
	for range maxRounds {
		var ask []string
		for _, revision := range revisions {
			if !asked[revision] && len(ask) < maxAsked {
				asked[revision] = true
				ask = append(ask, fmt.Sprint(revision))
			}
		}
		if len(ask) == 0 {
			break
		}
		answer, err := s.ask(ctx, question, url.Values{"revision": {strings.Join(ask, ",")}})
		if err != nil {
			return whole, err
		}
		whole = merge(whole, answer)
		if len(s.URLs) == 1 {
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
	answers, errs := make([]causes.Answer, len(s.URLs)), make([]error, len(s.URLs))
	var group sync.WaitGroup
	for i, server := range s.URLs {
		group.Go(func() { answers[i], errs[i] = s.askOne(ctx, server, question, query) })
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
			s.missing = map[string]error{}
		}
		s.missing[s.URLs[i]] = err
		s.mu.Unlock()
	}
	if !answered {
		return whole, errors.Join(errs...)
	}
	return whole, nil
}

func (s *Servers) askOne(ctx context.Context, server, question string, query url.Values) (answer causes.Answer, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, server+"/insight/v1/"+question+"?"+query.Encode(), nil)
	if err != nil {
		return answer, err
	}
	resp, err := s.HTTP.Do(req)
	if err != nil {
		return answer, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return answer, err
	case len(body) > maxAnswer:
		return answer, fmt.Errorf("%s: the answer has more than %d bytes", server, maxAnswer)
	case resp.StatusCode == http.StatusOK:
		return answer, json.Unmarshal(body, &answer)
	}
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Message != "" {
		return answer, fmt.Errorf("%s: %s", server, status.Message)
	}
	return answer, fmt.Errorf("%s: %s (is it a server of knarr?)", server, resp.Status)
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
