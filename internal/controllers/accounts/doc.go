// Package accounts keeps what every namespace's pods need to speak to the API: the service account "default", the
// ConfigMap with the cluster's CA, and the token Secrets that users ask for by hand.
package accounts
