// Package oidc authenticates JSON Web Tokens of outside issuers (API reference,
// AuthenticationConfiguration of apiserver.config.k8s.io).
//
// A Tokens holds one authenticator for each issuer of a configuration, which can be replaced at any
// time. An authenticator verifies a token with the keys that its issuer publishes (OpenID Connect
// Discovery 1.0). It then maps the token's claims to a user by the configuration's claim names or
// CEL expressions. The API's own library validates the configuration; package jws verifies
// signatures.
package oidc
