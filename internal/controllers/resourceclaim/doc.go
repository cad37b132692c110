// Package resourceclaim owns the ResourceClaims that pods are given from templates, and what claims say about who uses
// them (KEP-4381). The scheduler allocates claims and reserves them for pods; here is the rest of a claim's life: it is
// made for its pod (generate.go), and when its pods have ended, their reservations are taken back, then the allocation, then
// the protection against deletion, and at last the claim itself if it was made for a pod (release.go).
package resourceclaim
