// Package openapi makes the OpenAPI documents, version 2 and 3, of the built-in kinds.
//
// Nothing is kept of them in the binary: schemas come from the Go types by reflection (json and patch tags, SwaggerDoc methods), from the
// schema that server-side apply has anyway (list and map types, defaults, unions) and, for the types of apimachinery,
// apiextensions and kube-aggregator, from those modules' own definitions. A document is made when a client first asks for it;
// what stays in memory is its compressed form.
package openapi
