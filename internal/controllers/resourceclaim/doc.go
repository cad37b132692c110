// Package resourceclaim creates and releases ResourceClaims (KEP-4381). The scheduler allocates
// claims and reserves them for pods; this package does the rest.
//
// It creates a pod's claims from their templates (generate.go). When the pods of a claim have
// ended, it removes their reservations, then the allocation, then the protection against deletion,
// and finally the claim if it was made for a pod (release.go).
package resourceclaim
