package controlplane

import (
	"context"
	"log/slog"
	"net"

	"github.com/knarr-project/knarr/internal/egress"
	"github.com/knarr-project/knarr/internal/insight/causes"
	"github.com/knarr-project/knarr/internal/insight/otlp"
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
	return trace.Open(ctx, config, tracerOptions(dial, log))
}

func tracerOptions(dial egress.Dial, log *slog.Logger) trace.Options {
	options := trace.Options{Service: tracedService, Instance: zpages.Identity(), Log: log}
	if dial != nil {
		options.Dial = func(ctx context.Context, address string) (net.Conn, error) { return dial(ctx, "tcp", address) }
	}
	return options
}

// openChanges opens the export of changes to the collector of the tracer's configuration. It
// returns nil without one, or without a causal log.
func (s *Server) openChanges(recorded *causes.Log) (*otlp.Exporter, error) {
	file := s.cfg.APIServer.Tracing
	if file == "" || recorded == nil {
		return nil, nil
	}
	config, err := trace.Load(file)
	if err != nil {
		recorded.Close()
		return nil, err
	}
	perMillion := int32(0)
	if n := config.SamplingRatePerMillion; n != nil {
		perMillion = *n
	}
	log := s.log.With("component", "apiserver")
	return otlp.New(otlp.Options{
		Uploader: trace.NewUploader(config, tracerOptions(s.egress.To(egress.ControlPlane), log)), PerMillion: perMillion, Instance: zpages.Identity(), Log: log,
	}), nil
}
