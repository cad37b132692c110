package run

import (
	"context"
	"log/slog"

	"github.com/knarr-project/knarr/internal/trace"
	"github.com/knarr-project/knarr/internal/zpages"
)

// tracedService is what traces call this server, as upstream's.
const tracedService = "apiserver"

// openTracer makes what traces requests; nil where no file says so.
func openTracer(ctx context.Context, file string, log *slog.Logger) (*trace.Tracer, error) {
	if file == "" {
		return nil, nil
	}
	config, err := trace.Load(file)
	if err != nil {
		return nil, err
	}
	return trace.Open(ctx, config, trace.Options{Service: tracedService, Instance: zpages.Identity(), Log: log})
}
