// Package dra prepares the devices of ResourceClaims on the node (KEP-4381).
//
// In: drivers and pods with claims. Out: calls of the drivers.
package dra
