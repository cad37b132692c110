package cri

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	internalapi "k8s.io/cri-api/pkg/apis"
	criclient "k8s.io/cri-client/pkg"
)

// Options of a connection.
type Options struct {
	// Images is the address of the image service; default the endpoint's.
	Images string
	// Timeout limits calls without a timeout of their own; default 2 minutes. Image pulls and
	// streams are not limited.
	Timeout time.Duration
	// Tracer records the calls; may be nil.
	Tracer trace.TracerProvider
}

const requestTimeout = 2 * time.Minute

// Services are the two services of a CRI endpoint. They are safe for concurrent use and reconnect
// automatically.
type Services struct {
	// Endpoint is the runtime's address, for example "unix:///run/knarr/containerd.sock".
	Endpoint string
	Runtime  internalapi.RuntimeService
	Images   internalapi.ImageManagerService
}

// Connect connects to a CRI v1 endpoint. Addresses without a scheme are unix sockets.
func Connect(ctx context.Context, endpoint string, o Options) (*Services, error) {
	endpoint = withScheme(endpoint)
	imageEndpoint, timeout := cmp.Or(withScheme(o.Images), endpoint), cmp.Or(o.Timeout, requestTimeout)
	if o.Tracer == nil {
		o.Tracer = noop.NewTracerProvider()
	}
	runtime, err := criclient.NewRemoteRuntimeService(ctx, endpoint, timeout, o.Tracer, false)
	if err != nil {
		return nil, fmt.Errorf("connect to container runtime at %s: %w", endpoint, err)
	}
	images, err := criclient.NewRemoteImageService(ctx, imageEndpoint, timeout, o.Tracer, false)
	if err != nil {
		_ = runtime.Close(ctx)
		return nil, fmt.Errorf("connect to image service at %s: %w", imageEndpoint, err)
	}
	return &Services{Endpoint: endpoint, Runtime: withTasks{runtime, endpoint}, Images: images}, nil
}

// Close closes the connections; the runtime keeps running.
func (s *Services) Close(ctx context.Context) {
	_ = s.Runtime.Close(ctx)
	_ = s.Images.Close(ctx)
}

func withScheme(endpoint string) string {
	if strings.HasPrefix(endpoint, "/") {
		return "unix://" + endpoint
	}
	return endpoint
}
