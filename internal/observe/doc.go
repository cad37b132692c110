// Package observe is the HTTPS address of a component that runs alone, at the port of upstream's of the same kind: health pages, which everybody may read, and
// metrics and settings for those whom the API server lets read them (package auth/delegated).
//
// In: what the component tells of itself. Out: /healthz, /livez, /readyz, /metrics, /metrics/slis, /configz, /flagz and /statusz, as upstream's
// kube-controller-manager and kube-scheduler have them.
package observe
