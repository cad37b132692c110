//lint:file-ignore U1000 Layouts of connections are read by reflection.

package socket

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http/httptest"
	"reflect"
	"testing"
)

func TestAConnectionWorksAfterItForgetsItsHandshake(t *testing.T) {
	made := httptest.NewTLSServer(nil)
	made.Close() // the test needs only its certificate
	certificates := made.TLS.Certificates
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		a, b := net.Pipe()
		t.Cleanup(func() { _, _ = a.Close(), b.Close() })
		server := tls.Server(a, &tls.Config{Certificates: certificates, ClientAuth: tls.RequireAnyClientCert, MaxVersion: version})
		client := tls.Client(b, &tls.Config{InsecureSkipVerify: true, Certificates: certificates})
		talk := func(what string) {
			t.Helper()
			from, to := server, client
			for range 2 {
				go func() { _, _ = io.WriteString(from, what) }()
				got := make([]byte, len(what))
				if _, err := io.ReadFull(to, got); err != nil || string(got) != what {
					t.Fatalf("%.20q %v", got, err)
				}
				from, to = to, from
			}
		}
		talk("before")
		if len(server.ConnectionState().PeerCertificates) == 0 {
			t.Fatal("the client has no certificate")
		}
		if hand := field[bytes.Buffer](server, "hand"); hand == nil || hand.Cap() == 0 {
			t.Error("the buffer was empty before")
		}
		ForgetHandshake(server)
		for _, name := range []string{"hand", "rawInput"} {
			if buffer := field[bytes.Buffer](server, name); buffer == nil || buffer.Cap() > 0 {
				t.Errorf("%s is kept", name)
			}
		}
		if len(server.ConnectionState().PeerCertificates) != 0 || field[[][]*x509.Certificate](server, "verifiedChains") == nil {
			t.Error("certificates are kept")
		}
		talk("afterwards")
		talk(string(make([]byte, 100_000)))
		go func() { _ = client.Close() }()
		if _, err := server.Read(make([]byte, 1)); err != io.EOF {
			t.Error(err)
		}
	}
	plain, _ := net.Pipe()
	ForgetHandshake(plain)
}

func TestAnUnknownLayoutOfTLSConnectionsIsRefused(t *testing.T) {
	type known struct {
		hand, rawInput   bytes.Buffer
		peerCertificates []*x509.Certificate
		verifiedChains   [][]*x509.Certificate
	}
	type renamed struct {
		handshake, rawInput bytes.Buffer
		peerCertificates    []*x509.Certificate
		verifiedChains      [][]*x509.Certificate
	}
	type retyped struct {
		hand, rawInput   bytes.Buffer
		peerCertificates [][]byte
		verifiedChains   [][]*x509.Certificate
	}
	for layout, want := range map[reflect.Type]string{
		reflect.TypeFor[known]():    "",
		reflect.TypeFor[tls.Conn](): "",
		reflect.TypeFor[renamed]():  "socket.renamed has no field hand of type bytes.Buffer",
		reflect.TypeFor[retyped]():  "socket.retyped has no field peerCertificates of type []*x509.Certificate",
	} {
		got := ""
		if err := checkLayout(layout); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", layout, got, want)
		}
	}
}
