package trace

import (
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	apiserverconfig "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	tracingv1 "k8s.io/component-base/tracing/api/v1"
)

// Configuration holds the collector's endpoint and the sampling rate per million for requests whose
// clients send no sampling decision.
type Configuration = tracingv1.TracingConfiguration

// Load reads a TracingConfiguration of apiserver.config.k8s.io in any version. Unknown fields are
// an error.
func Load(path string) (*Configuration, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("failed to read tracing config: %w", err)
	}
	scheme := runtime.NewScheme()
	install.Install(scheme)
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder()
	config := &apiserverconfig.TracingConfiguration{}
	if err := runtime.DecodeInto(decoder, data, config); err != nil {
		return nil, fmt.Errorf("failed to read tracing config: unable to decode tracing configuration data: %w", err)
	}
	if errs := tracingv1.ValidateTracingConfiguration(&config.TracingConfiguration, nil, nil); len(errs) > 0 {
		return nil, fmt.Errorf("failed to validate tracing configuration: %w", errs.ToAggregate())
	}
	return &config.TracingConfiguration, nil
}
