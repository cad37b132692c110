// Package check compares `knarr check` with an API server.
//
// The server runs in the test, without nodes. Each case is one object: an example of
// internal/check/examples, or a mutation of one by a seeded generator. The server gets it as a
// create with dry run and strict field validation. check must find an error exactly if the server
// refuses, at the same paths. Known differences are in a list with their reasons.
//
// KNARR_CHECK_CASES is the number of mutations, default 500. KNARR_CHECK_SEED is the seed, default
// 1.
package check
