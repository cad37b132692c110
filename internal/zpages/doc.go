// Package zpages serves what a process tells of itself: health pages, the metrics that every process has, /statusz (KEP-4827) and /flagz (KEP-4828). The
// last two are text for people and, when the Accept header asks for a kind of the group config.k8s.io, JSON or YAML.
package zpages
