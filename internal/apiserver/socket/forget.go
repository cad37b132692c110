package socket

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"reflect"
	"unsafe"
)

// ForgetHandshake frees what a TLS connection keeps of its handshake, half of its 10 KB: empty
// buffers and the client's certificates. Afterwards ConnectionState has no certificates. Use it for
// connections that live for hours, after authentication, while no goroutine reads or writes.
//
// crypto/tls has no function for this, so ForgetHandshake sets private fields. It touches a field
// only if the name and the type are the expected ones (see CheckLayout). An empty buffer is as good
// as a new one, and crypto/tls keeps the certificates only for ConnectionState.
func ForgetHandshake(c net.Conn) {
	conn, ok := c.(*tls.Conn)
	if !ok || !conn.ConnectionState().HandshakeComplete {
		return
	}
	for _, name := range handshakeBuffers {
		if buffer := field[bytes.Buffer](conn, name); buffer != nil && buffer.Len() == 0 {
			*buffer = bytes.Buffer{}
		}
	}
	if certificates := field[[]*x509.Certificate](conn, peerCertificates); certificates != nil {
		*certificates = nil
	}
	if chains := field[[][]*x509.Certificate](conn, verifiedChains); chains != nil {
		*chains = nil
	}
}

// The private fields of tls.Conn that ForgetHandshake sets.
var handshakeBuffers = []string{"hand", "rawInput"}

const (
	peerCertificates = "peerCertificates"
	verifiedChains   = "verifiedChains"
)

// CheckLayout returns an error if tls.Conn does not have the private fields that ForgetHandshake
// sets: this version of crypto/tls is then an unknown one.
func CheckLayout() error { return checkLayout(reflect.TypeFor[tls.Conn]()) }

func checkLayout(conn reflect.Type) error {
	var errs []error
	for _, name := range handshakeBuffers {
		errs = append(errs, hasField[bytes.Buffer](conn, name))
	}
	return errors.Join(append(errs,
		hasField[[]*x509.Certificate](conn, peerCertificates),
		hasField[[][]*x509.Certificate](conn, verifiedChains))...)
}

func hasField[T any](of reflect.Type, name string) error {
	f, ok := of.FieldByName(name)
	if want := reflect.TypeFor[T](); !ok || f.Type != want {
		return fmt.Errorf("%s has no field %s of type %s", of, name, want)
	}
	return nil
}

// field returns the connection's field; nil if no field has this name and this type.
func field[T any](conn *tls.Conn, name string) *T {
	f := reflect.ValueOf(conn).Elem().FieldByName(name)
	if !f.IsValid() || f.Type() != reflect.TypeFor[T]() {
		return nil
	}
	return (*T)(unsafe.Pointer(f.UnsafeAddr()))
}
