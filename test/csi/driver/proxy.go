package driver

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
)

// proxy joins each connection to the driver's socket with a connection to a TCP port. Upstream's
// tests connect to the port in advance, and answer the calls.
func proxy(ctx context.Context, options Options, log io.Writer) error {
	address, found := strings.CutPrefix(options.ProxyEndpoint, "tcp://")
	if !found {
		return fmt.Errorf("--proxy-endpoint=%q: want tcp://HOST:PORT", options.ProxyEndpoint)
	}
	callers, err := listen(options.Endpoint)
	if err != nil {
		return err
	}
	answers, err := net.Listen("tcp", address)
	if err != nil {
		callers.Close()
		return err
	}
	return join(ctx, callers, answers, log)
}

// join works until ctx ends.
func join(ctx context.Context, callers, answers net.Listener, log io.Writer) error {
	stop := context.AfterFunc(ctx, func() { callers.Close(); answers.Close() })
	defer stop()
	var pairs sync.WaitGroup
	defer pairs.Wait()
	for {
		caller, err := callers.Accept()
		if err != nil {
			return ended(ctx, err)
		}
		answer, err := answers.Accept()
		if err != nil {
			caller.Close()
			return ended(ctx, err)
		}
		pairs.Go(func() {
			closeBoth := func() { caller.Close(); answer.Close() }
			stop := context.AfterFunc(ctx, closeBoth)
			defer stop()
			var back sync.WaitGroup
			back.Go(func() { defer closeBoth(); _, _ = io.Copy(caller, answer) })
			_, err := io.Copy(answer, caller)
			closeBoth()
			back.Wait()
			fmt.Fprintln(log, "a connection has ended:", err)
		})
	}
}

func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
