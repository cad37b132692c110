// Package zpages serves information about a process: health pages, the common process metrics,
// /statusz (KEP-4827) and /flagz (KEP-4828). /statusz and /flagz answer in plain text. If the
// Accept header requests a kind of the group config.k8s.io, they answer in JSON or YAML.
package zpages
