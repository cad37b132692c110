package main

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/containerd/ttrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
)

// frame makes a frame of ttrpc.
func frame(stream uint32, kind byte, content []byte) []byte {
	head := make([]byte, headerSize)
	binary.BigEndian.PutUint32(head, uint32(len(content)))
	binary.BigEndian.PutUint32(head[4:], stream)
	head[8] = kind
	return append(head, content...)
}

func call(t *testing.T, stream uint32, method string, timeout time.Duration) []byte {
	t.Helper()
	content, err := proto.Marshal(&ttrpc.Request{Service: "containerd.task.v3.Task", Method: method, TimeoutNano: int64(timeout)})
	if err != nil {
		t.Fatal(err)
	}
	return frame(stream, typeRequest, content)
}

func TestFramesAreFoundWhereverTheStreamIsCut(t *testing.T) {
	want := [][]byte{frame(1, typeRequest, []byte("abc")), frame(3, typeRequest, nil), frame(5, typeRequest, bytes.Repeat([]byte{1}, 300))}
	stream := bytes.Join(want, nil)
	for size := 1; size <= len(stream); size++ {
		var f frames
		var got [][]byte
		for at := 0; at < len(stream); at += size {
			f.add(stream[at:min(at+size, len(stream))], func(frame []byte) { got = append(got, bytes.Clone(frame)) })
		}
		if !f.atBoundary() || len(got) != len(want) {
			t.Fatalf("pieces of %d bytes: %d frames, want %d", size, len(got), len(want))
		}
		for i := range want {
			if !bytes.Equal(got[i], want[i]) {
				t.Fatalf("pieces of %d bytes: frame %d is %v", size, i, got[i])
			}
		}
	}
}

func TestALargeFrameIsNotKept(t *testing.T) {
	var f frames
	var got []byte
	whole := frame(7, typeRequest, make([]byte, keptFrame+1))
	f.add(whole[:5000], func([]byte) { t.Fatal("too early") })
	if f.atBoundary() {
		t.Error("a part of a frame counts as a boundary")
	}
	f.add(whole[5000:], func(frame []byte) { got = frame })
	if len(got) != headerSize || streamOf(got) != 7 || !f.atBoundary() {
		t.Errorf("the frame has %d bytes", len(got))
	}
}

// connected returns a connection and containerd's end of it.
func connected(t *testing.T, requests ...[]byte) (*conn, net.Conn) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	s := &sleeper{conns: map[*conn]struct{}{}}
	c, err := s.newConn(pair[0], requests)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(pair[1]), "peer")
	defer file.Close()
	peer, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); peer.Close() })
	return c, peer
}

// transfer sends bytes through the connection, as a request or as an answer.
func transfer(t *testing.T, from io.Writer, to io.Reader, data []byte) {
	t.Helper()
	if _, err := from.Write(data); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(to, make([]byte, len(data))); err != nil {
		t.Fatal(err)
	}
}

func (c *conn) restingRequests() (requests [][]byte, ok bool) {
	c.sleeper.mu.Lock()
	defer c.sleeper.mu.Unlock()
	return c.waiting()
}

func TestAShimSleepsWithWaitsOnly(t *testing.T) {
	c, peer := connected(t)
	wait := call(t, 1, "Wait", 0)
	transfer(t, peer, c, wait)
	if got, ok := c.restingRequests(); !ok || len(got) != 1 || !bytes.Equal(got[0], wait) {
		t.Fatalf("with a Wait: %v, %v", got, ok)
	}
	for name, request := range map[string][]byte{
		"another request":      call(t, 3, "Kill", 0),
		"a Wait with an end":   call(t, 5, "Wait", time.Second),
		"a half request":       call(t, 7, "Wait", 0)[:12],
		"an enormous Wait":     frame(9, typeRequest, make([]byte, keptFrame+1)),
		"an unreadable demand": frame(11, typeRequest, []byte{255, 255}),
	} {
		t.Run(name, func(t *testing.T) {
			c, peer := connected(t)
			transfer(t, peer, c, request)
			if _, ok := c.restingRequests(); ok {
				t.Error("the shim may sleep")
			}
			if len(request) < headerSize || name == "a half request" {
				return
			}
			transfer(t, c, peer, frame(streamOf(request), typeResponse, []byte("done")))
			if got, ok := c.restingRequests(); !ok || len(got) != 0 {
				t.Errorf("after the answer: %v, %v", got, ok)
			}
		})
	}
}

func TestRequestsOfTheSleepAreReadAgain(t *testing.T) {
	first, second := call(t, 1, "Wait", 0), call(t, 5, "Wait", 0)
	c, peer := connected(t, first, second)
	if _, ok := c.restingRequests(); ok {
		t.Error("the shim may sleep before it has read them")
	}
	got := make([]byte, len(first)+len(second))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, append(bytes.Clone(first), second...)) {
		t.Fatalf("read %v, %v", got, err)
	}
	transfer(t, c, peer, frame(1, typeResponse, nil))
	if got, ok := c.restingRequests(); !ok || len(got) != 1 || !bytes.Equal(got[0], second) {
		t.Errorf("owed: %v, %v", got, ok)
	}
	peer.Close()
	if _, err := c.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("read after the end: %v", err)
	}
}

func TestHowLongAShimStaysAwake(t *testing.T) {
	const least = 10 * time.Second
	awake := least
	for range 20 {
		awake = nextAwake(awake, least, time.Second)
	}
	if awake != longestAwake {
		t.Errorf("after many short sleeps: %s", awake)
	}
	if got := nextAwake(awake, least, time.Hour); got != least {
		t.Errorf("after a long sleep: %s", got)
	}
}

func TestKillsForWantOfMemoryAreCounted(t *testing.T) {
	for text, want := range map[string]int{
		"oom_kill_disable 0\nunder_oom 0\noom_kill 3\n":               3,
		"low 0\nhigh 0\nmax 9\noom 2\noom_kill 1\noom_group_kill 0\n": 1,
		"": 0,
	} {
		path := t.TempDir() + "/events"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := kills(path); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	if got := kills("/no such file"); got != 0 {
		t.Errorf("without a file: %d", got)
	}
}
