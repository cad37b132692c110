package resource

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/knarr-project/knarr/internal/resource/strategy"
)

// For returns the strategy of a kind, or nil; every stored row of api.Kinds has one. Its functions
// take the kind's hub type. A kind that shows another kind's objects (api.Kind.Alias) has its own
// strategy, whose functions take the other kind's hub type.
func For(gr schema.GroupResource) *strategy.Strategy { return strategies[gr] }
