package controlplane

import (
	"context"
	"log/slog"
	"net"

	"github.com/knarr-project/knarr/internal/egress"
	"github.com/knarr-project/knarr/internal/trace"
	"github.com/knarr-project/knarr/internal/zpages"
)

// tracedService is the service name in traces, the same as upstream's.
const tracedService = "apiserver"

// openTracer opens the tracer. It returns nil if no file is configured.
func openTracer(ctx context.Context, file string, dial egress.Dial, log *slog.Logger) (*trace.Tracer, error) {
	if file == "" {
		return nil, nil
	}
	config, err := trace.Load(file)
	if err != nil {
		return nil, err
	}
	options := trace.Options{Service: tracedService, Instance: zpages.Identity(), Log: log}
	if dial != nil {
		options.Dial = func(ctx context.Context, address string) (net.Conn, error) { return dial(ctx, "tcp", address) }
	}
	return trace.Open(ctx, config, options)
}
