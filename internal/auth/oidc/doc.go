// Package oidc authenticates JSON Web Tokens of outside issuers (API reference, AuthenticationConfiguration of apiserver.config.k8s.io).
//
// A Tokens holds one authenticator for each issuer of a configuration and is told a new configuration while it works. An authenticator
// verifies a token with the keys that its issuer publishes (OpenID Connect Discovery 1.0), and makes a user of its claims as the configuration
// says: by claims' names or CEL expressions. What the configuration may say is checked by the API's own library; signatures by package jws.
package oidc
