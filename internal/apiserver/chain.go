package apiserver

import (
	"context"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/knarr-project/knarr/internal/apiserver/telemetry"
	"github.com/knarr-project/knarr/internal/apiserver/wire"
	"github.com/knarr-project/knarr/internal/auth"
)

// chain is the way of every HTTP request through the server.
type chain struct {
	*Server
	mux    *http.ServeMux // of paths that are no resources
	stages []stage
}

// stage is one step of the chain.
type stage struct {
	// name is upstream's name of the filter, for its metric and its span; a stage without a name
	// has neither.
	name string
	// took observes the stage's time if the request goes on.
	took prometheus.Observer
	// run returns false if it has answered the request.
	run func(x *exchange) bool
}

// exchange is one request on its way through the stages.
type exchange struct {
	w    *telemetry.ResponseRecorder
	r    *http.Request
	info *wire.RequestInfo
	id   string // for the audit log
	user auth.User
	// ctx is the request's context, with what the stages add.
	ctx context.Context
	// limit is how long the request may take.
	limit time.Duration
	timer telemetry.FilterTimer
	// began is when the first stage began, authenticating how long the authentication took.
	began          time.Time
	authenticating time.Duration
	// cancel, if it is set, releases the request's deadline.
	cancel context.CancelFunc
}

// newHandler builds the chain. The order of the stages is the order in which they run.
func (s *Server) newHandler() http.Handler {
	c, m := &chain{Server: s, mux: s.newMux()}, s.metrics.Security
	c.stages = []stage{
		{run: c.beforeUser},
		{run: c.limitTime},
		{run: c.authenticate, name: "authentication", took: m.Authentication},
		{run: c.trace},
		{run: c.audit, name: "audit", took: m.Record},
		{run: c.impersonate, name: "constrainedimpersonation", took: m.Impersonation},
		{run: c.waitForSeats, name: "priorityandfairness", took: m.Flow},
		{run: c.catchUp},
		{run: c.authorize, name: "authorization", took: m.Authorization},
		{run: c.serve},
	}
	return c
}

// ServeHTTP wraps the stages: it counts the request, records its end, and recovers from panics.
func (c *chain) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w, info := &telemetry.ResponseRecorder{ResponseWriter: rw, Closing: &c.leaving}, wire.ParseRequest(r)
	if c.cfg.ShutdownRetryAfter {
		done, ok := c.acceptRequest(rw, r, info)
		if !ok {
			limitBodyDrain(rw, r, c.cfg.RequestTimeout)
			return
		}
		defer done()
	}
	defer func() {
		if !w.Detached {
			limitBodyDrain(rw, r, c.cfg.RequestTimeout)
		}
	}()
	w.OnEnd = c.metrics.Begin(w, info, r.ContentLength)
	defer w.Release()
	now := time.Now()
	x := exchange{w: w, r: r, info: info, id: auditID(r), ctx: r.Context(), began: now, timer: telemetry.FilterTimer{Since: now}}
	defer c.endRequest(w, r, info)
	defer c.release(&x)
	w.Header().Set("Audit-Id", x.id)
	w.Header().Set("Cache-Control", "no-cache, private")
	for i := range c.stages {
		if !c.stages[i].pass(&x) {
			return
		}
	}
}

// pass runs the stage and measures it. If the stage answers the request, its span is recorded, but
// not its metric, as upstream.
func (s *stage) pass(x *exchange) bool {
	goesOn := s.run(x)
	switch {
	case s.name == "":
	case goesOn:
		x.timer.EndStage(s.name, s.took)
	default:
		x.timer.EndStage(s.name, nil)
	}
	return goesOn
}

// release ends the request's context.
func (c *chain) release(x *exchange) {
	if x.cancel != nil {
		c.metrics.Expired(x.ctx, x.w, x.info)
		x.cancel()
	}
}
