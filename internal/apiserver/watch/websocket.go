package watch

import (
	"context"
	"net/http"
	"sync"

	"golang.org/x/net/websocket"

	"github.com/knarr-project/knarr/internal/apiserver/wire"
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
	m.fr.Endpoint.Watched.Sent(len(frame))
	if m.fr.format.Media == wire.MediaProtobuf {
		const length = 4 // messages need no length prefix
		return websocket.Message.Send(m.ws, frame[length:])
	}
	return websocket.Message.Send(m.ws, string(frame))
}

func (m *messages) flush() error { return nil }

// ServeMessages answers a watch over a WebSocket.
func (s *Server) ServeMessages(ctx context.Context, w http.ResponseWriter, r *http.Request, f wire.Format, wt *Watcher) {
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
		if err := wt.run(ctx, &messages{ws: ws, fr: newFrames(wt.op.Endpoint, f, w)}); err != nil {
			s.Log.Debug("a watch ended early", "resource", wt.op.Endpoint.GVR.String(), "err", err)
		}
	}).ServeHTTP(w, r)
}
