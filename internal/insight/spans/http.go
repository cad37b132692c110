package spans

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// Path is the path of a node's API with its Spans. Callers need the right to get nodes/proxy.
const Path = "/insight/spans"

const (
	// MaxAsked bounds the pods and the objects with rules of one question, each.
	MaxAsked = 100
	// maxAnswer bounds a node's answer, in bytes: the JSON of a full Ring has less.
	maxAnswer = 4 << 20
)

// Answer is a node's answer.
type Answer struct {
	Spans []Span `json:"spans"`
	// Dropped is the number of Spans that the node has not kept, since the node agent started.
	Dropped int64 `json:"dropped,omitempty"`
}

// Query is the question for the Spans of pods, by UID, and of the rules of objects, as
// NAMESPACE/NAME.
func Query(pods, objects []string) url.Values {
	return url.Values{"pod": pods, "slice": objects}
}

// Handler answers questions for the Ring.
func (r *Ring) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		q := req.URL.Query()
		if len(q["pod"]) > MaxAsked || len(q["slice"]) > MaxAsked {
			http.Error(w, fmt.Sprintf("at most %d of pod and of slice are allowed", MaxAsked), http.StatusBadRequest)
			return
		}
		var a Answer
		a.Spans, a.Dropped = r.Select(q["pod"], q["slice"])
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(a) // the caller is gone
	})
}

// ReadAnswer reads a node's answer. It is not trusted: it is bounded, and Spans without an end are
// refused.
func ReadAnswer(body io.Reader) (a Answer, err error) {
	data, err := io.ReadAll(io.LimitReader(body, maxAnswer+1))
	if err != nil {
		return a, err
	}
	if len(data) > maxAnswer {
		return a, fmt.Errorf("the answer has more than %d bytes", maxAnswer)
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return Answer{}, err
	}
	if len(a.Spans) > maxSteps+maxRules {
		return Answer{}, fmt.Errorf("%d spans; at most %d are allowed", len(a.Spans), maxSteps+maxRules)
	}
	for i := range a.Spans {
		if s := &a.Spans[i]; s.End.IsZero() || s.Begin.IsZero() || s.End.Before(s.Begin) {
			return Answer{}, errors.New("a span ends before it begins")
		}
	}
	return a, nil
}
