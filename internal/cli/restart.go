package cli

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
)

// restart makes a process of knarr start again with the program that is installed then. The
// process keeps its id, so a service manager or a terminal sees the same process.
type restart struct {
	ctx     context.Context // of the run
	parent  context.Context // ends with a signal
	cancel  context.CancelFunc
	asked   atomic.Bool
	program string // read before the file is replaced
	err     error
}

func newRestart(parent context.Context) *restart {
	r := &restart{parent: parent}
	r.ctx, r.cancel = context.WithCancel(parent)
	r.program, r.err = os.Executable()
	return r
}

// ask ends the run.
func (r *restart) ask() {
	r.asked.Store(true)
	r.cancel()
}

// after starts the program again if the run has ended because of ask. A signal has precedence.
func (r *restart) after(bg *background, ended error) error {
	if !r.asked.Load() || r.parent.Err() != nil {
		return bg.ended(ended)
	}
	if ended != nil {
		// The process continues as its next run, so it cannot return the error.
		bg.log.Warn("an error at the end, before a restart", "error", ended)
	}
	if r.err != nil {
		return bg.ended(r.err)
	}
	bg.log.Info("starting again", "program", r.program)
	env := os.Environ()
	if bg.on {
		env = append(env, backgroundVariable+"=1")
	}
	err := syscall.Exec(r.program, append([]string{os.Args[0]}, os.Args[1:]...), env)
	return bg.ended(fmt.Errorf("start %s again: %w", r.program, err))
}
