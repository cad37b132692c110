// Package token issues and authenticates bearer tokens: service account tokens (JSON Web Tokens
// bound to an audience, a time and an object, KEP-1205), the older ones in Secrets, bootstrap
// tokens of joining nodes, and tokens of a static file.
//
// A token is valid while its signature, its times and all objects it names are valid. The account,
// and the pod, node or Secret it is bound to, are looked up on each request. Only the verification
// of the signature is remembered.
//
// See docs/adr/0007-authentication-and-pki.md.
package token
