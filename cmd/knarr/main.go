// Command knarr is a whole Kubernetes in one binary. This package only handles flags and signals;
// everything else is in internal/.
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
	// After the first signal, restore the default action, so that a second one ends the process at
	// once.
	context.AfterFunc(ctx, stop)
	if err := cli.Execute(ctx, os.Args); err != nil {
		if told := cli.ExitStatus(0); !errors.As(err, &told) {
			fmt.Fprintln(os.Stderr, "knarr:", err)
		}
		os.Exit(cli.Status(err))
	}
}
