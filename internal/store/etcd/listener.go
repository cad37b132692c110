package etcd

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver/api/etcdhttp"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
)

// listen opens the listener for other members, unless it is open.
func (e *Engine) listen() error {
	if e.listener != nil {
		return nil
	}
	info := e.peers.tls()
	l, err := rafthttp.NewListener(url.URL{Scheme: "https", Host: e.peers.Listen}, &info)
	if err != nil {
		return fmt.Errorf("listen for other members at %s: %w", e.peers.Listen, err)
	}
	e.listener = l
	e.serving.Go(func() { e.serve(l) })
	return nil
}

func (e *Engine) serve(l net.Listener) {
	s := &http.Server{
		Handler:     paceAnswers(etcdhttp.NewPeerHandler(e.server.Logger(), e.server), e.server.Lead, time.Now),
		ReadTimeout: 5 * time.Minute, // a snapshot of the whole store is one request
		ErrorLog:    log.New(io.Discard, "", 0),
	}
	if err := s.Serve(l); !errors.Is(err, net.ErrClosed) {
		e.log.Error("other members cannot reach this one", "error", err)
	}
	_ = s.Close() // ends the connections
}
