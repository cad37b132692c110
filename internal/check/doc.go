// Package check finds errors in files with Kubernetes objects, without a cluster.
//
// It does to each object what the API server does on a create, with the API server's own code:
// strict decoding (sigs.k8s.io/json), defaults and validation (internal/resource), schemas and
// rules of custom resources (internal/apiserver/custom), admission plugins and policies
// (internal/admission). The files are the cluster: admission looks up LimitRanges, namespaces,
// policies and their parameters among them. Then check follows references between the files.
//
// It also explains: what an API server has refused, at its place in the files (Explain), and what a
// kind or a field means, with an example of internal/check/examples (SchemaSet.Explain).
//
// Words. A document is one YAML or JSON document of a file. An object is a document, or an item of
// a List. A finding is an error or a warning at a place in a file. A fix is the replacement of one
// word of a file.
//
// In: files, and Options. Out: a Report with findings in the order of the files. The package reads
// files and never writes. It opens no connection, but kustomize fetches remote bases.
// docs/adr/0088-check-without-a-cluster.md and 0100-errors-at-their-place.md have the decisions.
package check
