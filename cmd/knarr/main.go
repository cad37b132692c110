// Command knarr is a whole Kubernetes in one binary. Everything it does is in internal/; this is flags and signals.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/knarr-project/knarr/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the process at once: after the first one the default action is back.
	context.AfterFunc(ctx, stop)
	if err := cli.Execute(ctx, os.Args); err != nil {
		if told := cli.ExitStatus(0); !errors.As(err, &told) {
			fmt.Fprintln(os.Stderr, "knarr:", err)
		}
		os.Exit(cli.Status(err))
	}
}
