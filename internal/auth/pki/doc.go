// Package pki owns the cluster's keys and certificates under DIR/pki. Layout and names are
// kubeadm's, so that a cluster can be taken over from upstream or given back.
//
// Words. An Authority is a CA: certificate and key. A Leaf is a certificate that an Authority
// signed for one purpose. It is renewed in place long before it expires; servers and clients that
// use its tls.Config callbacks need no restart.
//
// Open creates every certificate that is missing, damaged, about to expire or lacks a name. A
// damaged CA is an error instead, because all certificates of the cluster depend on it.
//
// See docs/adr/0007-authentication-and-pki.md.
package pki
