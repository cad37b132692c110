package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/knarr-project/knarr/internal/member"
	"github.com/knarr-project/knarr/internal/upgrade"
)

// turnRepeated is how long a machine may take to begin its turn, before it gets another one.
const turnRepeated = time.Minute

// stoppedError is an error of a machine, after which the upgrade stops.
type stoppedError struct {
	machine upgrade.Machine
	err     error
}

func (e *stoppedError) Error() string { return fmt.Sprintf("%s: %v", e.machine, e.err) }
func (e *stoppedError) Unwrap() error { return e.err }

// execute upgrades the machines of a plan.
func (u *upgrading) execute(ctx context.Context, st *upgrade.Status, plan *upgrade.Plan) error {
	total := len(upgrade.Left(plan.Servers)) + len(upgrade.Left(plan.Nodes))
	began := time.Now()
	if err := u.uncordonDone(ctx, plan); err != nil {
		return u.explain(err)
	}
	if total > 0 {
		if err := u.stage(); err != nil {
			return err
		}
		if err := u.begin(ctx, st); err != nil {
			return err
		}
		if err := u.all(ctx, plan); err != nil {
			return u.explain(err)
		}
	}
	if err := u.finish(ctx); err != nil {
		return err
	}
	u.say("upgraded %s to %s in %.0f s", count(total, "machine", "machines"), u.program.Build.Knarr, time.Since(began).Seconds())
	for _, m := range plan.ByHand {
		u.say("still to do by hand: on %s `knarr upgrade --from FILE --here`", m)
	}
	if total > 0 {
		u.wayBack(plan)
	}
	return nil
}

// begin stores the Order without turns, so that servers fetch the program.
func (u *upgrading) begin(ctx context.Context, st *upgrade.Status) error {
	o := &upgrade.Order{Program: u.program, Started: time.Now().UTC().Truncate(time.Second), Source: u.cfg.NodeName}
	if st.Order != nil {
		o.Generation = st.Order.Generation
		if st.Order.Program.SHA256 == u.program.SHA256 {
			u.say("continuing the upgrade of %s", st.Order.Started.Format(time.RFC3339))
			o.Started = st.Order.Started
		}
	}
	return callServer(ctx, u.cfg, http.MethodPost, upgrade.Path, o, &upgrade.Order{})
}

// all upgrades the servers one by one, the present leader last, then the nodes.
func (u *upgrading) all(ctx context.Context, plan *upgrade.Plan) error {
	left := upgrade.Left(plan.Servers)
	for len(left) > 0 {
		st, err := u.patiently(ctx)
		if err != nil {
			return err
		}
		at := 0
		for i, m := range left {
			if !leads(st, m.Name) {
				at = i
				break
			}
		}
		m := left[at]
		left = slices.Delete(left, at, at+1)
		if err := u.one(ctx, m, u.drains(plan)); err != nil {
			return &stoppedError{m, err}
		}
	}
	return u.allNodes(ctx, plan)
}

func leads(st *upgrade.Status, server string) bool {
	return slices.ContainsFunc(st.Servers, func(s upgrade.ServerState) bool { return s.Name == server && s.Leader })
}

// allNodes upgrades at most --max-unavailable nodes at the same time.
func (u *upgrading) allNodes(ctx context.Context, plan *upgrade.Plan) error {
	left := upgrade.Left(plan.Nodes)
	if len(left) == 0 {
		return nil
	}
	if err := u.awaitProgram(ctx); err != nil {
		return err
	}
	most, err := upgrade.Unavailable(u.maxUnavailable, len(plan.Nodes))
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	results := make(chan error, len(left))
	running := 0
	var failed error
	for (len(left) > 0 && failed == nil) || running > 0 {
		if failed == nil && len(left) > 0 && running < most {
			m := left[0]
			left = left[1:]
			running++
			go func() {
				if err := u.one(ctx, m, u.drains(plan)); err != nil {
					results <- &stoppedError{m, err}
					return
				}
				results <- nil
			}()
			continue
		}
		err := <-results
		running--
		if err != nil && failed == nil {
			failed = err // nodes in their turn finish it
		}
	}
	return failed
}

// awaitProgram waits until each server can serve the program to nodes.
func (u *upgrading) awaitProgram(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, u.machineTimeout)
	defer cancel()
	for {
		st, err := u.patiently(limited)
		if err != nil {
			return err
		}
		missing := ""
		for _, s := range st.Servers {
			if r := reportOf(st, upgrade.Server, s.Name); r == nil || r.Has != u.program.SHA256 {
				missing = s.Name
			}
		}
		if missing == "" {
			return nil
		}
		if err := u.pause(limited); err != nil {
			return fmt.Errorf("server %s has not fetched the program", missing)
		}
	}
}

// one upgrades one machine and waits until it is ready again.
func (u *upgrading) one(ctx context.Context, m upgrade.Machine, drain bool) error {
	began := time.Now()
	release := func() error { return nil }
	if m.Node != "" && drain {
		var err error
		if release, err = u.drainNode(ctx, m.Node); err != nil {
			return err
		}
	}
	u.say("%s: its turn", m)
	limited, cancel := context.WithTimeout(ctx, u.machineTimeout)
	defer cancel()
	err := u.turn(limited, m)
	if err == nil && m.Node != "" {
		err = u.awaitNode(limited, m.Node)
	}
	if err != nil {
		if m.Node != "" && drain {
			u.say("node %s: it stays cordoned until it is upgraded", m.Node)
		}
		return err
	}
	if err := release(); err != nil {
		return err
	}
	u.say("%s: runs %s and is ready, after %.1f s", m, u.program.Build.Knarr, time.Since(began).Seconds())
	return nil
}

// turn gives a machine its turn, and waits until it tells the program's build. A machine that did
// not see the turn, because it was starting, gets another one.
func (u *upgrading) turn(ctx context.Context, m upgrade.Machine) error {
	var given upgrade.Turn
	var since time.Time
	last := errors.New("it has not begun")
	for {
		if since.IsZero() || given.Nonce != "" && time.Since(since) > turnRepeated {
			given = upgrade.Turn{Kind: m.Kind, Name: m.Name, Nonce: rand.Text()}
			if err := u.give(ctx, given); err != nil {
				return err
			}
			since = time.Now()
		}
		st, err := u.patiently(ctx)
		if err != nil {
			return fmt.Errorf("%w; at last: %w", err, last)
		}
		r := reportOf(st, m.Kind, m.Name)
		switch {
		case r.Same(u.program.Build):
			given.Nonce = ""
			if m.Kind == upgrade.Node {
				return u.take(ctx, m)
			}
			if last = serverReady(st, m.Name, u.program.Build.Knarr); last == nil {
				return u.take(ctx, m)
			}
		case r != nil && r.Nonce == given.Nonce && r.Phase == upgrade.Failed:
			return errors.Join(errors.New(r.Error), u.take(ctx, m))
		case r != nil && r.Nonce == given.Nonce && r.Phase != upgrade.Idle:
			given.Nonce, since = r.Nonce, time.Now()
			last = fmt.Errorf("it is %s", r.Phase)
			if r.Phase == upgrade.Restarting {
				last = errors.New("it has not come back with the new program; `knarr logs` there shows why")
			}
		}
		if err := u.pause(ctx); err != nil {
			return fmt.Errorf("not within %s: %w", u.machineTimeout, last)
		}
	}
}

func reportOf(st *upgrade.Status, kind, name string) *upgrade.Report {
	for i := range st.Reports {
		if r := &st.Reports[i]; r.Kind == kind && r.Name == name {
			return r
		}
	}
	return nil
}

// serverReady returns why a server is not ready with the version.
func serverReady(st *upgrade.Status, name, version string) error {
	for _, s := range st.Servers {
		switch {
		case s.Name != name:
		case s.Ready != member.Healthy:
			return fmt.Errorf("it is not ready: %s", s.Ready)
		case s.Version != version:
			return fmt.Errorf("it still runs %s", s.Version)
		default:
			return nil
		}
	}
	return errors.New("it is no member any more")
}

// give adds a turn to the Order, and take removes those of a machine.
func (u *upgrading) give(ctx context.Context, t upgrade.Turn) error {
	return u.change(ctx, func(o *upgrade.Order) {
		o.Turns = slices.DeleteFunc(o.Turns, func(have upgrade.Turn) bool { return have.Kind == t.Kind && have.Name == t.Name })
		o.Turns = append(o.Turns, t)
	})
}

func (u *upgrading) take(ctx context.Context, m upgrade.Machine) error {
	return u.change(ctx, func(o *upgrade.Order) {
		o.Turns = slices.DeleteFunc(o.Turns, func(have upgrade.Turn) bool { return have.Kind == m.Kind && have.Name == m.Name })
	})
}

// finish removes the Order, and with it the copies of the program.
func (u *upgrading) finish(ctx context.Context) error {
	st, err := u.patiently(ctx)
	if err != nil || st.Order == nil {
		return err
	}
	return u.change(ctx, func(o *upgrade.Order) { o.Finished = true })
}

// change changes the Order. Turns of several nodes change it at the same time, so it tries again
// after a conflict.
func (u *upgrading) change(ctx context.Context, do func(*upgrade.Order)) error {
	for {
		st, err := u.patiently(ctx)
		if err != nil {
			return err
		}
		if st.Order == nil || st.Order.Program.SHA256 != u.program.SHA256 {
			return errors.New("another `knarr upgrade` has taken over")
		}
		do(st.Order)
		err = callServer(ctx, u.cfg, http.MethodPost, upgrade.Path, st.Order, &upgrade.Order{})
		var answered answeredError
		if err == nil || errors.As(err, &answered) && answered.code < 500 && answered.code != http.StatusConflict {
			return err
		}
		if pauseErr := u.pause(ctx); pauseErr != nil {
			return err
		}
	}
}

// patiently is status, repeated while the server here restarts.
func (u *upgrading) patiently(ctx context.Context) (*upgrade.Status, error) {
	for {
		st, err := u.status(ctx)
		var answered answeredError
		if err == nil || errors.As(err, &answered) && answered.code < 500 && answered.code != http.StatusTooManyRequests {
			return st, err
		}
		if pauseErr := u.pause(ctx); pauseErr != nil {
			return nil, fmt.Errorf("the server here does not answer: %w", err)
		}
	}
}

func (u *upgrading) pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(u.poll):
		return nil
	}
}

// explain adds the way on and the way back to an error.
func (u *upgrading) explain(err error) error {
	var stopped *stoppedError
	if !errors.As(err, &stopped) {
		return fmt.Errorf("%w; run the command again to continue", err)
	}
	u.say("stopped at %s: the machines after it are as before", stopped.machine)
	u.say("go on     run the command again, once the cause is removed")
	u.say("go back   on each upgraded machine: `knarr stop`, `knarr rollback --program-only --yes`, and start it;")
	u.say("          with its objects too, if it is the only server: `knarr rollback --yes`")
	return err
}

// wayBack says how to go back after an upgrade.
func (u *upgrading) wayBack(plan *upgrade.Plan) {
	command := "`knarr stop`, `knarr rollback --yes`, and start it again; nodes with --program-only"
	if len(plan.Servers) > 1 {
		command = "`knarr stop`, `knarr rollback --program-only --yes`, and start it again, one machine after the other"
	}
	u.say("the way back: %s", command)
}
