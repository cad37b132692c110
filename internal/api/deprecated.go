package api

import "k8s.io/apimachinery/pkg/runtime/schema"

// deprecated are the warnings for users of deprecated kinds.
var deprecated = map[schema.GroupVersionResource]string{
	{Version: "v1", Resource: "endpoints"}:         "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
	{Version: "v1", Resource: "componentstatuses"}: "v1 ComponentStatus is deprecated in v1.19+",
}

// Deprecated returns the warning for users of a deprecated built-in resource.
func Deprecated(gvr schema.GroupVersionResource) (warning string, ok bool) {
	warning, ok = deprecated[gvr]
	return warning, ok
}
