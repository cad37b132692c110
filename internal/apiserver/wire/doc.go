// Package wire is the form of requests and answers: paths, media types, bodies and errors.
//
// Words. A format is the media type of an answer, and whether it is a Table or metadata only. An
// envelope is the frame of protobuf objects, as in the store.
//
// In: an HTTP request. Out: a RequestInfo (verb, kind, name), decoded bodies, encoded objects,
// Statuses. The package knows types and bytes; it does not know which kinds the server has.
package wire
