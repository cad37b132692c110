package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.etcd.io/raft/v3"

	"github.com/knarr-project/knarr/internal/store"
)

// Why writes have an epoch. A follower sends a write to the leader. A leader that stops, hands over
// or is cut off drops it without a word, or, if it was only paused, passes it on much later. So a
// follower that repeats a write without an answer could make it twice.
//
// Each write among several members therefore has one more condition: the version of epochKey. To
// give up a write without an answer, a member first increases that version. Once this is applied
// here, the write was either applied before, and has its answer, or never will be. Then the member
// repeats it under the new version.
//
// An only member has no one to send writes to, and its writes have no epoch.

// epochKey holds nothing. Its version is the epoch.
const epochKey = "/knarr/store/epoch"

const (
	// unansweredAfter is how long a write waits for its answer from one leader. A message may be
	// lost with a connection although the leader stays. etcd would wait for 6.4 s.
	unansweredAfter = 2 * time.Second
	// settleTry is how long one increase of the epoch waits for its answer.
	settleTry = 300 * time.Millisecond
	// answerGrace is how long an answer that has come may need from one goroutine to another. A
	// write that is repeated too early has its first answer looked up again, for lateGrace.
	answerGrace = 5 * time.Millisecond
	lateGrace   = 500 * time.Millisecond
	// refusedPause is the wait before a refused write is repeated.
	refusedPause = 5 * time.Millisecond
)

var errUnsettled = fmt.Errorf("%w: no leader has confirmed the write", store.ErrUnavailable)

// epoch is this member's view of the version of epochKey. An outdated one costs a round trip.
type epoch struct {
	version atomic.Int64
	mu      sync.Mutex // held while this member increases it
}

// commit makes a transaction at most once. Among several members it outlives the loss of a leader.
func (e *Engine) commit(ctx context.Context, conditions []store.Condition, ops []store.Op) (*pb.TxnResponse, error) {
	if e.alone.Load() {
		return e.server.Txn(ctx, txnRequest(conditions, ops))
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // ends the attempts that were given up
	var givenUp []<-chan answer[*pb.TxnResponse]
	patience := e.patience()
	for {
		version := e.epoch.version.Load()
		changed := e.server.LeaderChangedNotify()
		attempt := propose(ctx, guarded(txnRequest(conditions, ops), version), e.server.Txn)
		a, answered := wait(ctx, attempt, changed, unansweredAfter)
		if !answered {
			if err := e.settle(ctx, version); err != nil {
				return nil, err
			}
			if a, answered = wait(ctx, attempt, nil, answerGrace); !answered {
				givenUp = append(givenUp, attempt)
				continue
			}
		}
		switch {
		case dropped(a.err):
			if err := patience(ctx, a.err); err != nil {
				return nil, notRefused(ctx, err, len(givenUp))
			}
			continue
		case a.err != nil:
			return nil, notRefused(ctx, a.err, len(givenUp))
		case !a.resp.Succeeded && epochOf(a.resp) != version:
			e.epoch.version.Store(epochOf(a.resp))
			continue
		case !a.resp.Succeeded:
			// Perhaps an attempt that was given up was applied, and made this one fail.
			for _, earlier := range givenUp {
				if first, ok := wait(ctx, earlier, nil, lateGrace); ok && first.err == nil && first.resp.Succeeded {
					return first.resp, nil
				}
			}
		}
		return a.resp, nil
	}
}

// notRefused returns the error of a write's last attempt. A refusal says nothing about the attempts
// that were given up: their answers may be late.
func notRefused(ctx context.Context, err error, givenUp int) error {
	if givenUp > 0 && errors.Is(translate(ctx, err), store.ErrNotBegun) {
		return unsettled(ctx, err)
	}
	return err
}

// repeatable makes a write that may be made twice. Among several members it outlives the loss of a
// leader. repeated reports whether an earlier attempt has no answer.
func repeatable[Q, T any](ctx context.Context, e *Engine, request Q, write func(context.Context, Q) (T, error)) (resp T, repeated bool, err error) {
	if e.alone.Load() {
		resp, err = write(ctx, request)
		return resp, false, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	patience := e.patience()
	for ; ; repeated = true {
		if err := e.awaitLeader(ctx); err != nil {
			return resp, repeated, err
		}
		changed := e.server.LeaderChangedNotify()
		attempt := propose(ctx, request, write)
		a, answered := wait(ctx, attempt, changed, unansweredAfter)
		if !answered {
			a, answered = wait(ctx, attempt, nil, answerGrace)
		}
		switch {
		case !answered:
		case dropped(a.err):
			if err := patience(ctx, a.err); err != nil {
				return resp, repeated, err
			}
		default:
			return a.resp, repeated, a.err
		}
	}
}

// answer is the result of one attempt.
type answer[T any] struct {
	resp T
	err  error
}

// propose makes an attempt. The channel gets its result.
func propose[Q, T any](ctx context.Context, request Q, write func(context.Context, Q) (T, error)) <-chan answer[T] {
	result := make(chan answer[T], 1)
	go func() {
		resp, err := write(ctx, request)
		result <- answer[T]{resp, err}
	}()
	return result
}

// wait returns the answer of an attempt, unless the leader changes or the time ends before.
func wait[T any](ctx context.Context, attempt <-chan answer[T], changed <-chan struct{}, limit time.Duration) (answer[T], bool) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case a := <-attempt:
		return a, true
	case <-ctx.Done():
		return answer[T]{err: ctx.Err()}, true
	case <-changed:
	case <-timer.C:
	}
	return answer[T]{}, false
}

// dropped reports whether raft has refused a proposal, which will then never be applied.
func dropped(err error) bool {
	return errors.Is(err, raft.ErrProposalDropped) || errors.Is(err, etcderrors.ErrNoLeader)
}

// patience returns a wait for a leader that accepts a refused write. A leader that hands over
// refuses for some milliseconds. After electionLimit, the wait returns the refusal.
func (e *Engine) patience() func(ctx context.Context, refusal error) error {
	var until time.Time
	return func(ctx context.Context, refusal error) error {
		switch now := time.Now(); {
		case until.IsZero():
			until = now.Add(electionLimit)
		case now.After(until):
			return refusal
		}
		if err := e.awaitLeader(ctx); err != nil {
			return err
		}
		select {
		case <-time.After(refusedPause):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// guarded adds the epoch to a transaction.
func guarded(req *pb.TxnRequest, version int64) *pb.TxnRequest {
	key := []byte(epochKey)
	req.Compare = append(req.Compare, &pb.Compare{
		Result: pb.Compare_EQUAL, Target: pb.Compare_VERSION, Key: key, TargetUnion: &pb.Compare_Version{Version: version},
	})
	req.Failure = append(req.Failure, readEpoch())
	return req
}

func readEpoch() *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte(epochKey)}}}
}

// epochOf returns the epoch that a failed guarded transaction has read.
func epochOf(resp *pb.TxnResponse) int64 {
	if len(resp.Responses) == 0 {
		return 0
	}
	r := resp.Responses[len(resp.Responses)-1].GetResponseRange()
	if r == nil || len(r.Kvs) == 0 {
		return 0
	}
	return r.Kvs[0].Version
}

// settle returns when the epoch is past the version. All writes of that version were then applied
// here, or never will be. One call at a time increases the epoch for all.
func (e *Engine) settle(ctx context.Context, version int64) error {
	e.epoch.mu.Lock()
	defer e.epoch.mu.Unlock()
	patience := e.patience()
	for e.epoch.version.Load() == version {
		if err := e.awaitLeader(ctx); err != nil {
			return unsettled(ctx, err)
		}
		bounded, cancel := context.WithTimeout(ctx, settleTry)
		resp, err := e.server.Txn(bounded, nextEpoch(version))
		late := bounded.Err() != nil
		cancel()
		switch {
		case err == nil && resp.Succeeded:
			e.epoch.version.Store(version + 1)
		case err == nil:
			e.epoch.version.Store(epochOf(resp))
		case dropped(err):
			if err := patience(ctx, err); err != nil {
				return unsettled(ctx, err)
			}
		case !late || ctx.Err() != nil:
			return unsettled(ctx, err)
		}
	}
	return nil
}

// unsettled is the error of a write that may have been made or not. It hides the cause's meaning,
// which may be that something else was not begun.
func unsettled(ctx context.Context, cause error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return fmt.Errorf("%w: %v", errUnsettled, cause)
}

// nextEpoch increases the epoch, unless another member has done so.
func nextEpoch(version int64) *pb.TxnRequest {
	req := guarded(&pb.TxnRequest{}, version)
	req.Success = []*pb.RequestOp{{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(epochKey)}}}}
	return req
}
