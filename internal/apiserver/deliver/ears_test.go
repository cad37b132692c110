package deliver

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"testing"
)

func ears(t *testing.T) *Ears {
	t.Helper()
	e, err := NewEars()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- e.Run() }()
	t.Cleanup(func() {
		if err := errors.Join(e.Close(), <-done); err != nil {
			t.Error(err)
		}
	})
	return e
}

func TestEarsTellOfDataAndOfTheEnd(t *testing.T) {
	e := ears(t)
	const connections = 100 // more than are told of at once
	var conns [connections]*Conn
	var others [connections]net.Conn
	var hear [connections]Ear
	heard := make(chan int, 2*connections)
	for i := range connections {
		conns[i], others[i] = pair(t)
		hear[i] = e.Open(func() { heard <- i })
		if err := hear[i].Listen(conns[i], true); err != nil {
			t.Fatal(err)
		}
	}
	for i := range connections {
		write(t, conns[(i+1)%connections], []byte("what is sent is not heard"))
		if _, err := others[i].Write([]byte("xy")); err != nil {
			t.Fatal(err)
		}
		if got := <-heard; got != i {
			t.Fatalf("connection %d was heard instead of %d", got, i)
		}
	}
	one := make([]byte, 1)
	for i := range connections {
		for _, want := range "xy" { // what was there before Listen is heard too
			if _, err := conns[i].Read(one); err != nil || rune(one[0]) != want {
				t.Fatalf("it was taken from the stream: %q %v", one, err)
			}
			if want == 'x' {
				if err := hear[i].Listen(conns[i], false); err != nil {
					t.Fatal(err)
				}
				<-heard
			}
		}
		if err := hear[i].Listen(conns[i], false); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			hear[i].Close()
		}
		_ = others[i].Close()
		if i%2 == 1 {
			if got := <-heard; got != i {
				t.Fatalf("connection %d was heard instead of %d", got, i)
			}
			if _, err := conns[i].Read(one); err == nil {
				t.Fatal("there is no end")
			}
		}
	}
}

func TestEarsCanBeClosedWhileTheyTell(t *testing.T) {
	for range 200 {
		e, err := NewEars()
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- e.Run() }()
		c, other := pair(t)
		if err := e.Open(func() {}).Listen(c, true); err != nil {
			t.Fatal(err)
		}
		_ = other.Close()
		if err := errors.Join(e.Close(), <-done); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNobodyIsHeardAfterTheEnd(t *testing.T) {
	e, err := NewEars()
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := e.Run(); err != nil {
		t.Error(err)
	}
	c, _ := pair(t)
	if e.Open(func() {}).Listen(c, true) == nil {
		t.Error("it listens")
	}
}

// TestAConnectionGoesOnWithoutItsHandshake fails when crypto/tls calls things otherwise than ForgetHandshake does.
func TestAConnectionGoesOnWithoutItsHandshake(t *testing.T) {
	made := httptest.NewTLSServer(nil)
	made.Close() // only its certificate is wanted
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
			t.Error("there was nothing to forget")
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
