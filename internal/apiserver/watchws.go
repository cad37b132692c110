package apiserver

import (
	"bufio"
	"bytes"
	"context"
	"net/http"
	"sync"

	"golang.org/x/net/websocket"
)

// messages sends each watch event as a WebSocket message of its own: text for JSON and YAML, binary for protobuf.
type messages struct {
	ws  *websocket.Conn
	fr  *frames
	buf *bytes.Buffer
}

func (m *messages) put(ev watchEvent) error {
	if err := m.fr.put(ev); err != nil {
		return err
	}
	if err := m.fr.w.Flush(); err != nil {
		return err
	}
	defer m.buf.Reset()
	if m.fr.f.media == mediaProtobuf {
		const length = 4 // messages have borders of their own
		return websocket.Message.Send(m.ws, m.buf.Bytes()[length:])
	}
	return websocket.Message.Send(m.ws, m.buf.String())
}

func (m *messages) flush() error { return nil }

// serveWatchMessages answers a watch over a WebSocket.
func (s *Server) serveWatchMessages(ctx context.Context, w http.ResponseWriter, r *http.Request, f format, wt *watcher) {
	websocket.Handler(func(ws *websocket.Conn) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		var reader sync.WaitGroup
		defer reader.Wait()
		defer func() { _ = ws.Close() }() // which ends the reader
		reader.Go(func() {
			defer cancel()
			var ignored []byte
			for websocket.Message.Receive(ws, &ignored) == nil {
			}
		})
		var buf bytes.Buffer
		fr := newFrames(wt.op.endpoint, f, w)
		fr.w = bufio.NewWriter(&buf)
		if err := wt.run(ctx, &messages{ws: ws, fr: fr, buf: &buf}); err != nil {
			s.log.Debug("a watch ended early", "resource", wt.op.endpoint.gvr.String(), "err", err)
		}
	}).ServeHTTP(w, r)
}
