package apiserver

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/knarr-project/knarr/internal/apiserver/past"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/insight/ask"
	"github.com/knarr-project/knarr/internal/insight/causes"
	"github.com/knarr-project/knarr/internal/insight/timeline"
)

// serveHistory answers the questions about objects as they were:
//
//	timeline?since=&until=&namespace=&group=&resource=&name=&related=&limit=&continue=
//	diff?since=&until=&namespace=&group=&resource=&name=&related=&limit=
//
// A time is RFC 3339, or a duration back from now such as 10m. It reports whether it knows the
// question.
func (i *insight) serveHistory(w http.ResponseWriter, r *http.Request) (known bool) {
	question := strings.TrimPrefix(r.URL.Path, ask.Path)
	if question != "timeline" && question != "diff" {
		return false
	}
	answer, err := i.askHistory(r.Context(), question, r.URL.Query())
	var body []byte
	if err == nil {
		body, err = json.Marshal(answer)
	}
	if err != nil {
		wire.RespondError(w, wire.ErrorFormat(r), err)
		return true
	}
	wire.Respond(w, http.StatusOK, wire.JSONFormat, body)
	return true
}

func (i *insight) askHistory(ctx context.Context, question string, values url.Values) (any, error) {
	if i.past == nil {
		return nil, apierrors.NewServiceUnavailable("this server does not record the history of objects (--history-size=off)")
	}
	q, err := parseQuestion(values, i.cfg.Clock())
	if err != nil {
		return nil, err
	}
	reader := &historyReader{i.gets(ctx)}
	if question == "diff" {
		return i.past.Net(ctx, q, reader)
	}
	return i.past.Timeline(ctx, q, reader)
}

// parseQuestion reads the parameters of a question.
func parseQuestion(values url.Values, now time.Time) (q *past.Question, err error) {
	q = &past.Question{
		Namespace: values.Get("namespace"), Group: values.Get("group"), Resource: values.Get("resource"), Name: values.Get("name"),
		Continue: values.Get("continue"),
	}
	if q.Since, err = parseMoment("since", values.Get("since"), now); err != nil {
		return nil, err
	}
	if q.Until, err = parseMoment("until", values.Get("until"), now); err != nil {
		return nil, err
	}
	if q.Group == "events.k8s.io" && q.Resource == "events" {
		q.Group = "" // the same objects
	}
	if q.Name != "" && q.Resource == "" {
		return nil, apierrors.NewBadRequest("name: resource must be given too")
	}
	if text := values.Get("related"); text != "" {
		if q.Related, err = strconv.ParseBool(text); err != nil {
			return nil, apierrors.NewBadRequest("related: " + strconv.Quote(text) + " is neither true nor false")
		}
	}
	if text := values.Get("limit"); text != "" {
		if q.Limit, err = strconv.Atoi(text); err != nil || q.Limit < 1 || q.Limit > past.MaxLimit {
			return nil, apierrors.NewBadRequest("limit: " + strconv.Quote(text) + " is no number from 1 to " + strconv.Itoa(past.MaxLimit))
		}
	}
	return q, nil
}

// parseMoment reads a time, or a duration back from now; the zero time for an empty text.
func parseMoment(name, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	at, err := timeline.ParseTime(text, now)
	if err != nil {
		return at, apierrors.NewBadRequest(name + ": " + err.Error())
	}
	return at, nil
}

// historyReader reads as the user of a question.
type historyReader struct{ gets }

// MayGet implements past.Reader.
func (r *historyReader) MayGet(o past.Object) bool {
	return r.may(causes.Object{Group: o.Group, Resource: o.Resource, Namespace: o.Namespace, Name: o.Name})
}

// Writes implements past.Reader. It asks all servers, as each causal log has its server's writes.
func (r *historyReader) Writes(ctx context.Context, revisions []int64) (records []causes.Record, missing map[string]string, err error) {
	if r.cfg.Causes == nil {
		return nil, nil, nil
	}
	logs, done := r.causalLogs(ctx, r.user)
	defer done()
	answer, err := logs.Of(ctx, revisions)
	return answer.Records, logs.Missing(), err
}
