package apiserver

import (
	"context"
	"net/http"
	"sync"

	"golang.org/x/net/websocket"
)

// messages sends each watch event as one WebSocket message: text for JSON and YAML, binary for
// protobuf.
type messages struct {
	ws *websocket.Conn
	fr *frames
}

func (m *messages) put(ev watchEvent) error {
	frame, err := m.fr.frame(ev)
	if err != nil {
		return err
	}
	m.fr.e.watched.sent(len(frame))
	if m.fr.f.media == mediaProtobuf {
		const length = 4 // messages need no length prefix
		return websocket.Message.Send(m.ws, frame[length:])
	}
	return websocket.Message.Send(m.ws, string(frame))
}

func (m *messages) flush() error { return nil }

// serveMessages answers a watch over a WebSocket.
func (s *watches) serveMessages(ctx context.Context, w http.ResponseWriter, r *http.Request, f format, wt *watcher) {
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
		if err := wt.run(ctx, &messages{ws: ws, fr: newFrames(wt.op.endpoint, f, w)}); err != nil {
			s.log.Debug("a watch ended early", "resource", wt.op.endpoint.gvr.String(), "err", err)
		}
	}).ServeHTTP(w, r)
}
