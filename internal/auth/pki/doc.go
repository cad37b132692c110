// Package pki owns the cluster's keys and certificates under DIR/pki, laid out and named as kubeadm does, so that a
// cluster can be taken over from upstream or given back.
//
// Words. An Authority is a CA: certificate and key. A Leaf is a certificate that an Authority signed for one purpose; it
// is renewed in place long before it expires, and servers and clients that use its tls.Config callbacks never restart for
// it. What is missing, damaged, about to expire or lacks a name is made anew at Open; a damaged CA is an error instead,
// because every certificate of the cluster hangs from it.
//
// See docs/adr/0007-authentication-and-pki.md.
package pki
