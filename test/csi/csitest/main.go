// Command csitest is a CSI driver for tests and the programs that run beside it:
//
//	csitest driver|registrar|provisioner|resizer|livenessprobe FLAGS
//
// Manifests of drivers mount a folder at /csi, so an image cannot have a program of that name.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/knarr-project/knarr/test/csi/driver"
	"github.com/knarr-project/knarr/test/csi/sidecar"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, args []string) error {
	programs := map[string]func(context.Context, sidecar.Options) error{
		"registrar": sidecar.Register, "provisioner": sidecar.Provision, "resizer": sidecar.Resize, "livenessprobe": sidecar.Liveness,
	}
	if len(args) == 0 {
		args = []string{""}
	}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	if args[0] == "driver" {
		var options driver.Options
		options.Flags(flags)
		_ = flags.Parse(args[1:])
		return driver.Run(ctx, options, os.Stderr)
	}
	program := programs[args[0]]
	if program == nil {
		return fmt.Errorf("command %q: want driver, registrar, provisioner, resizer or livenessprobe", args[0])
	}
	var options sidecar.Options
	options.Flags(flags)
	_ = flags.Parse(args[1:])
	return program(ctx, options)
}
