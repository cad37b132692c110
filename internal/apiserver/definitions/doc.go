// Package definitions serves the kinds that CustomResourceDefinitions define.
//
// Kinds looks a definition up in the cache when a request names its kind, so an unused definition
// costs nothing. It also keeps the status of definitions, removes the objects of deleted ones, and
// calls conversion webhooks. Documents lists these kinds in discovery and OpenAPI. What a
// definition means (schema, pruning, validation, columns) is package custom.
package definitions
