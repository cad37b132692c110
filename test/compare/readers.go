package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// stageReaders is a process of clients that list over and over. A separate process keeps them out
// of the goroutine scheduler of the measured clients, whose times must show only the server. For
// the same reason the process gets a CPU only when no other process wants it (sched(7),
// SCHED_IDLE), as if it were on another machine.
const stageReaders = "readers"

// readersOrder is the input of such a process on its standard input. The process works until that
// is closed.
type readersOrder struct {
	Kubeconfig string // with the server and its certificate
	Token      string
	Path       string
	Readers    int
}

// readersResult is its output at the end.
type readersResult struct{ Lists, Refused int64 }

// startReaders starts the process; stop ends it.
func startReaders(order readersOrder) (stop func() (readersResult, error), err error) {
	input, err := json.Marshal(order)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("chrt", "--idle", "0", self, "--stage", stageReaders)
	cmd.Stderr, cmd.SysProcAttr = os.Stderr, &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := in.Write(append(input, '\n')); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, fmt.Errorf("readers: %w", err)
	}
	return func() (result readersResult, err error) {
		_ = in.Close()
		if err = json.NewDecoder(out).Decode(&result); err != nil {
			err = fmt.Errorf("readers: read their result: %w", err)
		}
		return result, errors.Join(err, cmd.Wait())
	}, nil
}

// readers is the main function of that process.
func readers(ctx context.Context) error {
	in := json.NewDecoder(os.Stdin)
	var order readersOrder
	if err := in.Decode(&order); err != nil {
		return err
	}
	c, err := connect(order.Kubeconfig)
	if err != nil {
		return err
	}
	c.tls.Certificates, c.tls.GetClientCertificate, c.token = nil, nil, order.Token
	ctx, stop := context.WithCancel(ctx)
	var lists, refused atomic.Int64
	var wg sync.WaitGroup
	for range order.Readers {
		wg.Go(func() {
			for ctx.Err() == nil {
				if c.list(ctx, order.Path) == nil {
					lists.Add(1)
				} else if ctx.Err() == nil {
					refused.Add(1)
					_ = pause(ctx, time.Second) // as Retry-After demands
				}
			}
		})
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	stop()
	wg.Wait()
	return json.NewEncoder(os.Stdout).Encode(readersResult{lists.Load(), refused.Load()})
}
