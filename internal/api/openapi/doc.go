// Package openapi makes the OpenAPI documents, version 2 and 3, of the built-in kinds.
//
// The binary contains no documents. Schemas come from the Go types by reflection (json and patch
// tags, SwaggerDoc methods) and from server-side apply's schema (list and map types, defaults,
// unions). Types of apimachinery, apiextensions and kube-aggregator use the definitions of their
// modules. A document is made at its first request; only its compressed form stays in memory.
package openapi
