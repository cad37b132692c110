package shutdown

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// Reason and Message are in the status of a pod that a shutdown has ended.
	Reason  = "Terminated"
	Message = "Pod was terminated in response to imminent node shutdown."
	// RefusedReason and Refused are in the status of a pod that arrives during a shutdown.
	RefusedReason = "NodeShutdown"
	Refused       = "Pod was rejected as the node is shutting down."
)

const (
	// look is the interval for checking whether the pods of a group have ended.
	look = 50 * time.Millisecond
	// settleTime bounds the wait for the rest after all pods have ended.
	settleTime = 3 * time.Second
)

// errShuttingDown is the message of the node's Ready condition.
var errShuttingDown = errors.New("node is shutting down")

// Config configures a Manager. All fields but Now are required.
type Config struct {
	// Groups end one after the other, the first one first. Without groups nothing ever ends.
	Groups []Group
	// Pods lists the pods that run.
	Pods func() []*corev1.Pod
	// End ends a pod within the grace period, in seconds.
	End func(pod *corev1.Pod, grace int64)
	// Ended reports whether nothing of a pod runs any more.
	Ended func(uid types.UID) bool
	// Settled reports whether the API knows that the pods have ended, and their volumes are
	// released.
	Settled func() bool
	// Changed is called when a shutdown begins, or with false when it is called off.
	Changed func(begins bool)
	// Logind connects to logind. It returns an error that wraps errors.ErrUnsupported if the
	// machine has none.
	Logind func(ctx context.Context) (Logind, error)
	// Halting reports whether the machine goes down, or the process with all that it has started.
	Halting func() bool
	// StateFile keeps the times of the last shutdown for the metrics of the next start.
	StateFile string
	Now       func() time.Time
	Log       *slog.Logger
}

// Logind is a connection to the program that delays and announces the machine's shutdown.
type Logind interface {
	// Delay is the longest time for which logind waits for a lock.
	Delay(ctx context.Context) (time.Duration, error)
	// Extend asks for a longer delay. It returns when the delay holds, or an error.
	Extend(ctx context.Context, d time.Duration) error
	// Lock takes a delay lock.
	Lock(ctx context.Context) (release func() error, err error)
	// Signals delivers true if a shutdown begins, and false if it is called off. It is closed with
	// the connection.
	Signals() <-chan bool
	Close() error
}

// Manager ends pods before the machine goes down. It is safe for concurrent use.
type Manager struct {
	Config

	mu    sync.Mutex
	down  bool // a shutdown has begun
	begun bool // the pods are being ended, or have been
	done  chan struct{}
	times times
}

// New makes a Manager.
func New(c Config) *Manager {
	if c.Now == nil {
		c.Now = time.Now
	}
	m := &Manager{Config: c}
	m.readTimes()
	return m
}

// Err returns an error while the node is shutting down.
func (m *Manager) Err() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.down {
		return errShuttingDown
	}
	return nil
}

// Run follows logind until ctx ends. It connects again after an error.
func (m *Manager) Run(ctx context.Context) {
	if len(m.Groups) == 0 {
		return
	}
	told := ""
	for wait := time.Second; ; wait = min(2*wait, 30*time.Second) {
		err := m.follow(ctx, func() { wait, told = time.Second/2, "" })
		if ctx.Err() != nil {
			return
		}
		if text := err.Error(); text != told {
			told = text
			m.Log.Warn("the machine's shutdown is not announced; pods still end in order if knarr is stopped by it", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// follow holds a lock and waits for signals until ctx ends or the connection is lost.
func (m *Manager) follow(ctx context.Context, connected func()) error {
	logind, err := m.Logind(ctx)
	if err != nil {
		return err
	}
	defer logind.Close()
	if err := m.makeTime(ctx, logind); err != nil {
		return err
	}
	release, err := logind.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = release() }()
	connected()
	for {
		select {
		case <-ctx.Done():
			return nil
		case begins, ok := <-logind.Signals():
			if !ok {
				return errors.New("the connection to logind is lost")
			}
			if !begins {
				m.callOff()
				if err := release(); err != nil {
					return err
				}
				if release, err = logind.Lock(ctx); err != nil {
					release = func() error { return nil }
					return err
				}
				continue
			}
			m.Log.Info("the machine is shutting down: ending the pods", "within", total(m.Groups))
			m.end(ctx)
			if err := release(); err != nil {
				m.Log.Warn("cannot release the lock that delays the shutdown", "error", err)
			}
			release = func() error { return nil }
		}
	}
}

// makeTime makes logind wait long enough for all groups. A shorter delay is better than none, so a
// failure is only told.
func (m *Manager) makeTime(ctx context.Context, logind Logind) error {
	have, err := logind.Delay(ctx)
	if err != nil {
		return err
	}
	want := total(m.Groups)
	if have >= want {
		return nil
	}
	if err := logind.Extend(ctx, want); err != nil {
		m.Log.Warn("logind delays a shutdown for less than the pods' grace periods; set InhibitDelayMaxSec in logind.conf", "wanted", want, "is", have, "error", err)
	}
	return ctx.Err()
}

// Stop is called when the node agent has been told to end. If the machine goes down with it, Stop
// returns when the pods have ended. Otherwise it returns at once.
func (m *Manager) Stop(ctx context.Context) {
	if len(m.Groups) == 0 {
		return
	}
	m.mu.Lock()
	begun := m.begun
	m.mu.Unlock()
	if !begun && !m.Halting() {
		return
	}
	if !begun {
		m.Log.Info("the machine goes down: ending the pods", "within", total(m.Groups))
	}
	m.end(ctx)
}

// callOff ends a shutdown that did not happen.
func (m *Manager) callOff() {
	m.mu.Lock()
	was := m.down
	m.down, m.begun = false, false
	m.mu.Unlock()
	if was {
		m.Log.Info("the machine's shutdown was called off")
		m.Changed(false)
	}
}

// end ends all pods, group by group. A second call waits for the first one.
func (m *Manager) end(ctx context.Context) {
	m.mu.Lock()
	if m.begun {
		done := m.done
		m.mu.Unlock()
		select {
		case <-done:
		case <-ctx.Done():
		}
		return
	}
	done := make(chan struct{})
	m.down, m.begun, m.done = true, true, done
	m.times = times{Start: m.Now()}
	m.mu.Unlock()
	defer close(done)
	m.writeTimes()
	m.Changed(true)
	over := time.Now().Add(total(m.Groups))
	for i, pods := range split(m.Groups, m.Pods()) {
		if left := m.endGroup(ctx, m.Groups[i], pods); left > 0 {
			m.Log.Warn("pods did not end within the period of their group", "priority", m.Groups[i].Priority, "period", m.Groups[i].Period, "pods", left)
		}
	}
	await(ctx, min(settleTime, time.Until(over)), m.Settled)
	m.mu.Lock()
	m.times.End = m.Now()
	m.mu.Unlock()
	m.writeTimes()
}

// endGroup ends pods and waits for them, at most for the group's period. It returns the number of
// pods that still run.
func (m *Manager) endGroup(ctx context.Context, g Group, pods []*corev1.Pod) int {
	if len(pods) == 0 {
		return 0
	}
	for _, pod := range pods {
		m.End(pod, grace(g, pod))
	}
	left := len(pods)
	await(ctx, g.Period, func() bool {
		left = 0
		for _, pod := range pods {
			if !m.Ended(pod.UID) {
				left++
			}
		}
		return left == 0
	})
	return left
}

// await waits until is returns true, the time is over or ctx ends.
func await(ctx context.Context, most time.Duration, is func() bool) {
	over := time.NewTimer(most)
	defer over.Stop()
	tick := time.NewTicker(look)
	defer tick.Stop()
	for !is() {
		select {
		case <-ctx.Done():
			return
		case <-over.C:
			return
		case <-tick.C:
		}
	}
}

// Outlast returns a context that ends when ctx has ended and Stop has returned.
func (m *Manager) Outlast(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		m.Stop(longer)
		cancel()
	})
	return longer, func() { stop(); cancel() }
}
