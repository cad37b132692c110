// Package zpages serves what a process tells of itself: /statusz (KEP-4827) and /flagz (KEP-4828), as text for people and, when the Accept header
// asks for a kind of the group config.k8s.io, as JSON or YAML.
package zpages
