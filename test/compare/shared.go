package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// stream is an endless answer.
type stream interface {
	io.Closer
	// follow passes arriving bytes to taken until the stream ends, and returns the reason. The
	// bytes are valid until taken returns.
	follow(taken func(b []byte)) error
}

const (
	// streamWindow and sharedWindow are the flow-control windows of a stream and of an HTTP/2
	// connection, as in Go's own client.
	streamWindow, sharedWindow = 4 << 20, 1 << 30
	// streamsPerConnection is the number of watches per connection.
	streamsPerConnection = 100
)

// sharedStreams opens watches over HTTP/2, a hundred per connection.
func (c *clients) sharedStreams(ctx context.Context, path string, n int) ([]stream, error) {
	connections := make([]*sharedConnection, (n+streamsPerConnection-1)/streamsPerConnection)
	err := parallel(len(connections), 16, func(i int) (err error) {
		connections[i], err = c.dialShared()
		return err
	})
	if err == nil {
		return openAll(n, func(i int) (stream, error) { return connections[i/streamsPerConnection].get(ctx, c.address, path) })
	}
	for _, s := range connections {
		if s != nil {
			s.conn.Close()
		}
	}
	return nil, err
}

// sharedConnection is an HTTP/2 connection (RFC 9113) for GET requests only. Its one goroutine
// reads for all streams. As with wire, clients must cost as little as possible.
type sharedConnection struct {
	conn   *tls.Conn
	framer *http2.Framer // the connection's goroutine reads from it

	mu      sync.Mutex // guards the fields below, and writing to the framer
	block   bytes.Buffer
	fields  *hpack.Encoder // writes to block
	next    uint32
	streams map[uint32]*sharedStream
	err     error // why the streams have ended
}

// sharedStream is one stream of a connection.
type sharedStream struct {
	on     *sharedConnection
	id     uint32
	status chan int // receives its status code once
	ended  chan struct{}

	mu             sync.Mutex // guards the fields below
	taken          func([]byte)
	early          []byte // bytes that arrived before follow
	unacknowledged int    // bytes that have been read without a window update
	failure        error
}

func (c *clients) dialShared() (*sharedConnection, error) {
	config := c.tls.Clone()
	config.NextProtos = []string{http2.NextProtoTLS}
	conn, err := tls.Dial("tcp", c.address, config)
	if err != nil {
		return nil, err
	}
	s := &sharedConnection{conn: conn, framer: http2.NewFramer(conn, bufio.NewReaderSize(conn, 64<<10)), next: 1, streams: map[uint32]*sharedStream{}}
	s.fields = hpack.NewEncoder(&s.block)
	s.framer.SetReuseFrames()
	s.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_, err = io.WriteString(conn, http2.ClientPreface)
	err = errors.Join(err, s.framer.WriteSettings(http2.Setting{ID: http2.SettingEnablePush}, http2.Setting{ID: http2.SettingInitialWindowSize, Val: streamWindow}),
		s.framer.WriteWindowUpdate(0, sharedWindow))
	if err != nil {
		conn.Close()
		return nil, err
	}
	go s.read()
	return s, nil
}

// get opens a stream.
func (s *sharedConnection) get(ctx context.Context, host, path string) (stream, error) {
	st := &sharedStream{on: s, status: make(chan int, 1), ended: make(chan struct{})}
	if err := s.ask(st, host, path); err != nil {
		return nil, err
	}
	select {
	case code := <-st.status:
		if code == http.StatusOK {
			return st, nil
		}
		st.Close()
		return nil, fmt.Errorf("watch: %d", code)
	case <-st.ended:
		return nil, fmt.Errorf("watch: %w", st.follow(func([]byte) {}))
	case <-ctx.Done():
		st.Close()
		return nil, ctx.Err()
	}
}

func (s *sharedConnection) ask(st *sharedStream, host, path string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return s.err
	}
	s.block.Reset()
	for _, f := range []hpack.HeaderField{
		{Name: ":method", Value: http.MethodGet}, {Name: ":scheme", Value: "https"}, {Name: ":authority", Value: host}, {Name: ":path", Value: path},
		{Name: "accept", Value: protobufType + ";stream=watch"},
	} {
		if err := s.fields.WriteField(f); err != nil {
			return err
		}
	}
	st.id = s.next
	s.next += 2
	s.streams[st.id] = st
	return s.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: st.id, BlockFragment: s.block.Bytes(), EndStream: true, EndHeaders: true})
}

// read serves all streams until the connection ends.
func (s *sharedConnection) read() {
	err := error(nil)
	unacknowledged := 0
	for err == nil {
		var frame http2.Frame
		if frame, err = s.framer.ReadFrame(); err != nil {
			break
		}
		switch f := frame.(type) {
		case *http2.DataFrame:
			n := int(f.Header().Length)
			if unacknowledged += n; unacknowledged >= sharedWindow/2 {
				err = s.writeFrame(func() error { return s.framer.WriteWindowUpdate(0, uint32(unacknowledged)) })
				unacknowledged = 0
			}
			if st := s.stream(f.StreamID); st != nil {
				err = errors.Join(err, st.take(f.Data(), n))
				if f.StreamEnded() {
					st.end(io.EOF)
				}
			}
		case *http2.MetaHeadersFrame:
			if st := s.stream(f.StreamID); st != nil {
				code, _ := strconv.Atoi(f.PseudoValue("status"))
				select {
				case st.status <- code:
				default: // trailers
				}
				if f.StreamEnded() {
					st.end(io.EOF)
				}
			}
		case *http2.RSTStreamFrame:
			if st := s.stream(f.StreamID); st != nil {
				st.end(fmt.Errorf("the server ended the stream: %s", f.ErrCode))
			}
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = s.writeFrame(s.framer.WriteSettingsAck)
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				err = s.writeFrame(func() error { return s.framer.WritePing(true, f.Data) })
			}
		}
	}
	s.mu.Lock()
	s.err = err
	left := s.streams
	s.streams = nil
	s.mu.Unlock()
	s.conn.Close()
	for _, st := range left {
		st.end(err)
	}
}

// writeFrame writes a frame.
func (s *sharedConnection) writeFrame(write func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return write()
}

func (s *sharedConnection) stream(id uint32) *sharedStream {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams[id]
}

// take passes on arrived bytes, which took size bytes of the windows.
func (st *sharedStream) take(b []byte, size int) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.taken != nil {
		st.taken(b)
	} else {
		st.early = append(st.early, b...)
	}
	st.unacknowledged += size
	if st.unacknowledged < streamWindow/2 {
		return nil
	}
	read := uint32(st.unacknowledged)
	st.unacknowledged = 0
	return st.on.writeFrame(func() error { return st.on.framer.WriteWindowUpdate(st.id, read) })
}

func (st *sharedStream) end(err error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.failure == nil {
		st.failure = err
		close(st.ended)
	}
}

func (st *sharedStream) follow(taken func([]byte)) error {
	st.mu.Lock()
	if len(st.early) > 0 {
		taken(st.early)
	}
	st.taken, st.early = taken, nil
	st.mu.Unlock()
	<-st.ended
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.failure
}

// Close ends the stream. The last stream of a connection closes the connection.
func (st *sharedStream) Close() error {
	s := st.on
	s.mu.Lock()
	_, open := s.streams[st.id]
	delete(s.streams, st.id)
	last := len(s.streams) == 0
	var err error
	if open && !last {
		err = s.framer.WriteRSTStream(st.id, http2.ErrCodeCancel)
	}
	s.mu.Unlock()
	if last {
		err = s.conn.Close()
	}
	st.end(net.ErrClosed)
	return err
}
