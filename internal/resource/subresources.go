package resource

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/knarr-project/knarr/internal/resource/autoscaling"
	"github.com/knarr-project/knarr/internal/resource/pods"
	"github.com/knarr-project/knarr/internal/resource/strategy"
)

// Scales is the table of the scale subresource of every kind.
var Scales = autoscaling.ScaleStrategy()

// DefaultBody sets the defaults of a subresource's request body that has no strategy of its own.
func DefaultBody(obj runtime.Object) {
	if t, ok := obj.(*authenticationv1.TokenRequest); ok {
		strategy.SetPointer(&t.Spec.ExpirationSeconds, pods.DefaultTokenSeconds)
	}
}
