// Package settings reads the node's settings: upstream's KubeletConfiguration
// (kubelet.config.k8s.io/v1beta1) from a file and from a folder of drop-ins.
//
// In: YAML or JSON files. Out: a Settings, which is completed with defaults and checked.
//
// Words. A field is a leaf of the configuration, named by its path, such as
// authentication.webhook.cacheTTL. A field works if knarr does what upstream documents for it. Any
// other field is fixed: a value that differs from the accepted ones is an error with the reason.
// Fields is the table of all fields; no field is ignored.
//
// A package that implements a field sets Works in the field's row. A test compares the table with
// the type, and docs/guides/node-settings.md with the table.
//
// See docs/adr/0054-settings-of-a-node.md.
package settings
