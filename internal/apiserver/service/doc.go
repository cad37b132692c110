// Package service allocates the cluster IPs and node ports of Services.
//
// The Allocator is the hooks of one kind: it adds the IPAddress objects and the bitmap of node
// ports to the transaction that writes the Service. So no address is ever taken without a Service
// that has it, and nothing needs repair (KEP-1880, KEP-3070, KEP-3668). Families of addresses
// follow KEP-563.
package service
