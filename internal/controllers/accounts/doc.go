// Package accounts gives the pods of every namespace access to the API. It owns the service account
// "default", the ConfigMap with the cluster's CA, the token Secrets that users create by hand, and
// the bootstrap tokens of joining machines.
package accounts
