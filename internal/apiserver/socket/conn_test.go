package socket

import (
	"bytes"
	"io"
	"net"
	"testing"
)

// pair returns a Conn and its other end.
func pair(t *testing.T) (*Conn, net.Conn) {
	t.Helper()
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := Listen(plain)
	defer l.Close()
	other, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Close(), other.Close() })
	return c.(*Conn), other
}

func write(t *testing.T, c *Conn, b []byte) {
	t.Helper()
	if _, err := c.Write(b); err != nil {
		t.Fatal(err)
	}
}

func TestHeldWritesLeaveTogether(t *testing.T) {
	c, other := pair(t)
	c.Hold(nil)
	write(t, c, []byte("one "))
	write(t, c, []byte("two "))
	buffer, all, err := c.Push()
	if err != nil || !all || string(buffer) != "one two " {
		t.Fatalf("%q %v %v", buffer, all, err)
	}
	write(t, c, []byte("three"))
	got := make([]byte, len("one two three"))
	if _, err := io.ReadFull(other, got); err != nil || string(got) != "one two three" {
		t.Fatalf("%q %v", got, err)
	}
}

func TestAPushIntoAFullSocketReturnsAndLosesNothing(t *testing.T) {
	c, other := pair(t)
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<20) // more than any socket takes
	c.Hold(nil)
	write(t, c, data)
	if _, all, err := c.Push(); err != nil || all {
		t.Fatalf("all %v, %v", all, err)
	}
	drained := make(chan error, 1)
	go func() {
		if err := c.Drain(); err != nil {
			drained <- err
			return
		}
		_, err := c.Write([]byte("end"))
		drained <- err
	}()
	got := make([]byte, len(data)+len("end"))
	if _, err := io.ReadFull(other, got); err != nil || !bytes.Equal(got[:len(data)], data) || string(got[len(data):]) != "end" {
		t.Fatalf("other bytes arrived: %v", err)
	}
	if err := <-drained; err != nil {
		t.Fatal(err)
	}
}
