package etcd

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/knarr-project/knarr/internal/store"
)

// etcd ends the process when it cannot write to its disk or finds its data inconsistent: it logs a
// message of level fatal or panic. Here such a message becomes the engine's failure instead. The
// goroutine that logged it waits for ever, so that nothing after the failed step runs. All later
// operations return the cause.

// failure is the end of an engine by its own fault.
type failure struct {
	once sync.Once
	done chan struct{} // closed when the engine has failed
	err  error         // set before done is closed
}

func newFailure() *failure { return &failure{done: make(chan struct{})} }

// set records the first cause.
func (f *failure) set(err error) {
	f.once.Do(func() { f.err = err; close(f.done) })
}

// cause returns nil while the engine works.
func (f *failure) cause() error {
	select {
	case <-f.done:
		return f.err
	default:
		return nil
	}
}

// refusal is the error of an operation of a failed engine.
func (f *failure) refusal() error {
	if err := f.cause(); err != nil {
		return fmt.Errorf("%w: %w", store.ErrUnavailable, err)
	}
	return nil
}

// watch returns a logger whose messages of level fatal and panic set the failure.
func (f *failure) watch(lg *zap.Logger) *zap.Logger {
	return lg.WithOptions(zap.WithFatalHook(f), zap.WithPanicHook(f))
}

// OnWrite takes over after a fatal message of etcd. It does not return.
func (f *failure) OnWrite(e *zapcore.CheckedEntry, fields []zapcore.Field) {
	f.set(fatalError(e.Message, fields))
	select {}
}

// fatalError returns the message with the error that caused it.
func fatalError(message string, fields []zapcore.Field) error {
	for _, field := range fields {
		if err, ok := field.Interface.(error); ok && field.Type == zapcore.ErrorType {
			return fmt.Errorf("etcd: %s: %w", message, err)
		}
	}
	return errors.New("etcd: " + message)
}

// faults guards a read of the database's mapped file in the caller's goroutine. A page that is
// broken, or beyond the end of the file, becomes the engine's failure; otherwise it would end the
// process, or look like a fault of one request. The caller must defer the result.
func (e *Engine) faults(err *error) func() {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		if v := recover(); v != nil {
			e.failure.set(fmt.Errorf("%w: read %s: %v; %s", ErrCorrupt, e.path, v, WayBack(e.dir)))
			*err = e.failure.refusal()
		}
	}
}

// Failed is closed when the engine has failed and serves nothing any more.
func (e *Engine) Failed() <-chan struct{} { return e.failure.done }

// Failure returns the cause of the engine's failure, nil while it works.
func (e *Engine) Failure() error { return e.failure.cause() }

// shutOut closes the listener for other members of a failed engine.
func (e *Engine) shutOut() {
	e.changing.Lock()
	defer e.changing.Unlock()
	if e.listener != nil {
		_ = e.listener.Close()
	}
}
