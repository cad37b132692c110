package apiserver

import (
	"context"
	"time"
)

// A server without a quorum of its store shows its watches nothing new. Upstream ends them, since
// its own watch of etcd ends. So does this server: clients that know another server, or reach the
// servers through a load balancer that looks at /readyz, open their watches there.

const (
	// quorumEvery is the interval at which a server among several asks its store.
	quorumEvery = 5 * time.Second
	// lostAfter is the number of failures in a row after which its watches end.
	lostAfter = 2
	// lostSpread is the time over which they end, so that not all clients connect at once.
	lostSpread = time.Second
)

// followQuorum ends all watches when the store has been unavailable for a while.
func (s *Server) followQuorum(ctx context.Context) {
	tick := time.NewTicker(quorumEvery)
	defer tick.Stop()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		failures = s.judgeQuorum(ctx, failures)
	}
}

// judgeQuorum asks the store once, and returns the number of failures in a row.
func (s *Server) judgeQuorum(ctx context.Context, failures int) int {
	var err error
	if !s.cfg.Alone() {
		err = answers(ctx, s.shared.Home)
	}
	if ctx.Err() != nil {
		return failures
	}
	if !outage(err) {
		if s.lost.Swap(false) {
			s.log.Info("the store answers again; watches begin again")
		}
		return 0
	}
	if failures++; failures >= lostAfter && !s.lost.Swap(true) {
		s.log.Warn("the store does not answer; all watches end, so that their clients go to another server", "err", err)
		end(append(s.watches.Streams.Ends(), s.handled.all()...), lostSpread)
	}
	return failures
}
