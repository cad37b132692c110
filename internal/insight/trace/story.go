package trace

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"

	"github.com/knarr-project/knarr/internal/insight/causes"
)

// Question chooses a change.
type Question struct {
	// Change is a revision, or the audit ID of a request. If it is "", the change is the last one
	// of Object by a user, or the one that led to it.
	Change string
	Object causes.Object
}

// Query is the question in the query of the path story.
func (q *Question) Query() url.Values {
	if q.Change != "" {
		return url.Values{"change": {q.Change}}
	}
	return url.Values{"group": {q.Object.Group}, "resource": {q.Object.Resource}, "namespace": {q.Object.Namespace}, "name": {q.Object.Name}}
}

// ParseQuestion reads the query of the path story.
func ParseQuestion(query url.Values) (Question, error) {
	q := Question{
		Change: query.Get("change"),
		Object: causes.Object{Group: query.Get("group"), Resource: query.Get("resource"), Namespace: query.Get("namespace"), Name: query.Get("name")},
	}
	switch {
	case q.Change != "" && q.Object != causes.Object{}:
		return q, errors.New("change, or an object, must be given, and not both")
	case q.Change == "" && (q.Object.Resource == "" || q.Object.Name == ""):
		return q, errors.New("change, or resource and name, must be given")
	}
	if n, err := strconv.ParseInt(q.Change, 10, 64); err == nil && n < 1 {
		return q, fmt.Errorf("change: %d is no revision: a number above 0", n)
	}
	return q, nil
}

// UnknownError says that the causal logs do not have a change.
type UnknownError struct{ text string }

// Error implements error.
func (e *UnknownError) Error() string { return e.text }

func unknown(format string, args ...any) error { return &UnknownError{fmt.Sprintf(format, args...)} }

// Ask returns the Records of the story that the question chooses. A change that the logs do not
// have is an *UnknownError.
func (q *Question) Ask(ctx context.Context, logs *Servers) (answer causes.Answer, err error) {
	roots, err := q.roots(ctx, logs)
	if err != nil {
		return answer, err
	}
	answer, err = logs.Forward(ctx, roots)
	if err == nil && len(answer.Records) == 0 && answer.Hidden == 0 {
		err = unknown("the causal logs have no write with revision %d", roots[0])
	}
	return answer, err
}

// roots returns the revisions with which the story begins.
func (q *Question) roots(ctx context.Context, logs *Servers) ([]int64, error) {
	if q.Change == "" {
		return rootsOfObject(ctx, logs, q.Object)
	}
	if revision, err := strconv.ParseInt(q.Change, 10, 64); err == nil {
		return []int64{revision}, nil
	}
	answer, err := logs.OfRequest(ctx, q.Change)
	if err != nil {
		return nil, err
	}
	var roots []int64
	for _, r := range answer.Records {
		roots = append(roots, r.Revision)
	}
	if len(roots) == 0 {
		return nil, unknown("the causal logs have no write of a request with the audit ID %q: give the whole ID, or a revision (metadata.resourceVersion)", q.Change)
	}
	return roots, nil
}

// rootsOfObject returns the last change of an object by a user. If there is none, it follows the
// causes of the object's creation, or of its newest write, back to a user's change.
func rootsOfObject(ctx context.Context, logs *Servers, object causes.Object) ([]int64, error) {
	answer, err := logs.OfObject(ctx, object)
	if err != nil {
		return nil, err
	}
	if len(answer.Records) == 0 {
		where := ""
		if object.Namespace != "" {
			where = " in namespace " + object.Namespace
		}
		return nil, unknown("the causal logs have no write of %s/%s%s: it has not changed while they were kept, or it does not exist", singular(object.Resource), object.Name, where)
	}
	from := answer.Records[0].Revision
	for _, r := range answer.Records {
		if r.Begins() {
			return []int64{r.Revision}, nil
		}
	}
	for _, r := range answer.Records {
		if r.Effect == causes.Created {
			from = r.Revision
			break
		}
	}
	back, err := logs.Backward(ctx, []int64{from})
	if err != nil {
		return nil, err
	}
	for _, r := range slices.Backward(back.Records) {
		if r.Begins() {
			return []int64{r.Revision}, nil
		}
	}
	if len(back.Records) > 0 {
		from = back.Records[0].Revision
	}
	return []int64{from}, nil
}
