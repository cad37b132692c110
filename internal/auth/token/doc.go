// Package token issues and checks bearer tokens: service account tokens (JSON Web Tokens bound to an audience, a time and
// an object, KEP-1205), the older ones that lie in Secrets, and bootstrap tokens, with which nodes join.
//
// A token is valid as long as its signature, its times and every object it names are: the account, and the pod, node or
// Secret it is bound to, are looked up on each request. Only the signature's verification is remembered.
//
// See docs/adr/0007-authentication-and-pki.md.
package token
