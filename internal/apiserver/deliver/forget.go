package deliver

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"net"
	"reflect"
	"unsafe"
)

// ForgetHandshake lets go of what a TLS connection keeps of its handshake, half of the 10 KB that it has: buffers that are empty, and the client's certificates. From then on ConnectionState
// has no certificates. It is for connections that live for hours, when it is known who the client is, and nobody reads or writes.
//
// crypto/tls has no way to do that, so it is done to its fields: those that have these names and types, none otherwise. A buffer that is empty is as good as a new one, and
// certificates are only kept to be told (TestAConnectionGoesOnWithoutItsHandshake).
func ForgetHandshake(c net.Conn) {
	conn, ok := c.(*tls.Conn)
	if !ok || !conn.ConnectionState().HandshakeComplete {
		return
	}
	for _, name := range []string{"hand", "rawInput"} {
		if buffer := field[bytes.Buffer](conn, name); buffer != nil && buffer.Len() == 0 {
			*buffer = bytes.Buffer{}
		}
	}
	if certificates := field[[]*x509.Certificate](conn, "peerCertificates"); certificates != nil {
		*certificates = nil
	}
	if chains := field[[][]*x509.Certificate](conn, "verifiedChains"); chains != nil {
		*chains = nil
	}
}

// field is the connection's field, if it has one of this name and type.
func field[T any](conn *tls.Conn, name string) *T {
	f := reflect.ValueOf(conn).Elem().FieldByName(name)
	if !f.IsValid() || f.Type() != reflect.TypeFor[T]() {
		return nil
	}
	return (*T)(unsafe.Pointer(f.UnsafeAddr()))
}
