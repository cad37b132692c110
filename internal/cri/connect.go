package cri

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	internalapi "k8s.io/cri-api/pkg/apis"
	criclient "k8s.io/cri-client/pkg"
)

// requestTimeout limits CRI calls without a timeout of their own. Image pulls and streams are not
// limited.
const requestTimeout = 2 * time.Minute

// Services are the two services of a CRI endpoint. They are safe for concurrent use and reconnect
// automatically.
type Services struct {
	// Endpoint is the runtime's address, for example "unix:///run/knarr/containerd.sock".
	Endpoint string
	Runtime  internalapi.RuntimeService
	Images   internalapi.ImageManagerService
}

// Connect connects to a CRI v1 endpoint that knarr does not run. If imageEndpoint is empty, it
// equals endpoint. Addresses without a scheme are unix sockets.
func Connect(ctx context.Context, endpoint, imageEndpoint string) (*Services, error) {
	endpoint = withScheme(endpoint)
	if imageEndpoint == "" {
		imageEndpoint = endpoint
	}
	runtime, err := criclient.NewRemoteRuntimeService(ctx, endpoint, requestTimeout, noop.NewTracerProvider(), false)
	if err != nil {
		return nil, fmt.Errorf("connect to container runtime at %s: %w", endpoint, err)
	}
	images, err := criclient.NewRemoteImageService(ctx, withScheme(imageEndpoint), requestTimeout, noop.NewTracerProvider(), false)
	if err != nil {
		_ = runtime.Close(ctx)
		return nil, fmt.Errorf("connect to image service at %s: %w", imageEndpoint, err)
	}
	return &Services{Endpoint: endpoint, Runtime: runtime, Images: images}, nil
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
