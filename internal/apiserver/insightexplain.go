package apiserver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/auth"
	"github.com/knarr-project/knarr/internal/insight/ask"
)

// Answerer answers a question about objects with a client that has the caller's rights.
type Answerer = func(ctx context.Context, c *rest.Config, q url.Values) (media string, body []byte, err error)

// Limits of questions that read objects. Their own requests take the seats of flow control.
const (
	maxQuestions     = 8                // at once
	maxQuestionsEach = 3                // of one user at once
	questionTime     = 30 * time.Second // of one question
	questionBytes    = 256 << 20        // of all objects that a question reads
	questionRetry    = 2                // seconds until a refused question may come again
)

// questionCount counts the questions in progress by user.
type questionCount struct {
	mu      sync.Mutex // guards the fields below
	running int
	by      map[string]int
}

// begin returns false if too many questions are in progress; otherwise end must be called.
func (q *questionCount) begin(user string) (end func(), ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.running >= maxQuestions || q.by[user] >= maxQuestionsEach {
		return nil, false
	}
	if q.by == nil {
		q.by = map[string]int{}
	}
	q.running++
	q.by[user]++
	return func() {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.running--
		if q.by[user]--; q.by[user] == 0 {
			delete(q.by, user)
		}
	}, true
}

// asksItself reports whether the requests of a path are the server's own, which take the seats.
func (i *insight) asksItself(path string) bool {
	name, ok := strings.CutPrefix(path, ask.Path)
	return ok && i.cfg.Answerers[name] != nil
}

// explain answers one of the Answerers' questions, within the limits.
func (i *insight) explain(w http.ResponseWriter, r *http.Request, answer Answerer) {
	user, _ := auth.UserFrom(r.Context())
	end, ok := i.questions.begin(user.Name)
	if !ok {
		wire.RespondError(w, wire.ErrorFormat(r), apierrors.NewTooManyRequests("too many questions are in progress: ask again later", questionRetry))
		return
	}
	defer end()
	ctx, cancel := context.WithTimeout(r.Context(), questionTime)
	defer cancel()
	media, body, err := answer(ctx, i.insideConfig(user, w.Header().Get("Audit-Id"), questionBytes), r.URL.Query())
	switch {
	case err == nil:
		w.Header().Set("Content-Type", media)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; sandbox")
		w.WriteHeader(http.StatusOK)
		_, _ = w.Write(body) // the client has gone
		return
	case errors.Is(err, context.DeadlineExceeded):
		err = apierrors.NewTimeoutError(fmt.Sprintf("the question takes longer than %v: ask about a namespace or an object", questionTime), questionRetry)
	case errors.Is(err, errTooMuch):
		err = apierrors.NewBadRequest(errTooMuch.Error() + ": ask about a namespace or an object")
	}
	wire.RespondError(w, wire.ErrorFormat(r), wire.AsStatusError(err))
}
